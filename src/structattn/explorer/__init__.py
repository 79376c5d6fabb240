"""The explorer: what the layers of a trained run do on examples, as recordings, and as a page that shows them.

- ``analyze``: record every layer of a run on examples of a split; ``analyze_run``: of a run that is already open.
- ``default_examples``: examples of a split with a suitable length.
- ``record``: a ``Recording`` of chosen examples and texts, each a ``RecordedExample`` with all its records, contents of
  stacks and surprisals, and the ``RecordedBeamSearch`` that found a translation; ``write_recording`` and
  ``read_recording`` keep it in a file, and ``write_archive`` writes its weights as arrays of NumPy.
- ``recording_to_json``: a recording as the content of its file; ``read_recording_json``: that of a file.
- ``TrainingRecorder``: records examples at each validation of a run in training.
- ``HeadOff``, ``SublayerOff``, ``ForcedAction``: interventions, with which ``record`` computes, and any code within
  ``intervened``. ``ablate`` returns an ``Ablation``, the validation cross-entropy of a run without each head and each
  sublayer, an ``AblatedSublayer``.
- ``neighbours_of``, ``tag_agreement``: the nearest words of a word, and how often neighbours share a part of speech.
- ``locality``, ``Locality``: how far from a position the heads of a translation model attend.
- ``explorer_page``, ``write_explorer``: the page of one or two recordings, which needs no server; its source is in
  ``explorer/``, from which ``explorer.js`` and ``explorer.css`` are built.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.explorer.ablation import AblatedSublayer, Ablation, ablate
    from structattn.explorer.head_locality import Locality, locality
    from structattn.explorer.interventions import ForcedAction, HeadOff, SublayerOff, intervened
    from structattn.explorer.page import explorer_page, write_explorer
    from structattn.explorer.recording import RecordedExample, Recording, record
    from structattn.explorer.recording_archive import write_archive
    from structattn.explorer.recording_files import (
        read_recording,
        read_recording_json,
        recording_to_json,
        write_recording,
    )
    from structattn.explorer.run_analysis import TrainingRecorder, analyze, analyze_run
    from structattn.explorer.searched_text import RecordedBeamSearch, default_examples
    from structattn.explorer.word_embeddings import neighbours_of, tag_agreement

__all__ = [
    "AblatedSublayer",
    "Ablation",
    "ForcedAction",
    "HeadOff",
    "Locality",
    "RecordedBeamSearch",
    "RecordedExample",
    "Recording",
    "SublayerOff",
    "TrainingRecorder",
    "ablate",
    "analyze",
    "analyze_run",
    "default_examples",
    "explorer_page",
    "intervened",
    "locality",
    "neighbours_of",
    "read_recording",
    "read_recording_json",
    "record",
    "recording_to_json",
    "tag_agreement",
    "write_archive",
    "write_explorer",
    "write_recording",
]

__getattr__, __dir__ = lazy_exports(__name__)
