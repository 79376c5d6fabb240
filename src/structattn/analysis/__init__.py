"""Analysis: what the layers of a trained run do on examples, written to its run folder as records.

- ``analyze``: record every layer of a run on examples of a split; ``analyze_run``: of a run that is already open.
- ``default_examples``: examples of a split with a suitable length.
- ``Record``: what a layer, or one head of it, did on an example.
- ``record``: a ``Recording`` of chosen examples and texts, each a ``RecordedExample`` with all its records, contents of
  stacks and surprisals, and the ``RecordedBeamSearch`` that found a translation; ``write_recording`` and
  ``read_recording`` keep it in a file.
- ``TrainingRecorder``: records examples at each validation of a run in training.
- ``HeadOff``, ``ForcedAction``: interventions, with which ``record`` computes.
- ``neighbours_of``, ``tag_agreement``: the nearest words of a word, and how often neighbours share a part of speech.
- ``locality``, ``Locality``: how far from a position the heads of a translation model attend.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.analysis.examples import default_examples
    from structattn.analysis.head_locality import Locality, locality
    from structattn.analysis.interventions import ForcedAction, HeadOff
    from structattn.analysis.recording import RecordedExample, Recording, record
    from structattn.analysis.recording_files import read_recording, write_recording
    from structattn.analysis.run_analysis import analyze, analyze_run
    from structattn.analysis.searched_text import RecordedBeamSearch
    from structattn.analysis.training_recorder import TrainingRecorder
    from structattn.analysis.word_embeddings import neighbours_of, tag_agreement
    from structattn.inference.records import Record

__all__ = [
    "ForcedAction",
    "HeadOff",
    "Locality",
    "Record",
    "RecordedBeamSearch",
    "RecordedExample",
    "Recording",
    "TrainingRecorder",
    "analyze",
    "analyze_run",
    "default_examples",
    "locality",
    "neighbours_of",
    "read_recording",
    "record",
    "tag_agreement",
    "write_recording",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ForcedAction": "structattn.analysis.interventions",
        "HeadOff": "structattn.analysis.interventions",
        "Locality": "structattn.analysis.head_locality",
        "Record": "structattn.inference.records",
        "RecordedBeamSearch": "structattn.analysis.searched_text",
        "RecordedExample": "structattn.analysis.recording",
        "Recording": "structattn.analysis.recording",
        "TrainingRecorder": "structattn.analysis.training_recorder",
        "analyze": "structattn.analysis.run_analysis",
        "analyze_run": "structattn.analysis.run_analysis",
        "default_examples": "structattn.analysis.examples",
        "locality": "structattn.analysis.head_locality",
        "neighbours_of": "structattn.analysis.word_embeddings",
        "read_recording": "structattn.analysis.recording_files",
        "record": "structattn.analysis.recording",
        "tag_agreement": "structattn.analysis.word_embeddings",
        "write_recording": "structattn.analysis.recording_files",
    },
)
