"""Recordings: all that is known of what a run does on chosen examples, in one object that a file can hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from structattn.analysis.examples import MAX_TOKENS, example_batch
from structattn.analysis.interventions import Intervention, intervened
from structattn.analysis.receptive_fields import receptive_field_records
from structattn.analysis.searched_text import RecordedBeamSearch, continued_text, searched_pair
from structattn.data.batching.pairs import PairBatch
from structattn.data.batching.sequences import Batch
from structattn.inference.explanations import example_records, text_batches
from structattn.inference.records import Record
from structattn.inference.streams import require_no_string
from structattn.inference.trained_run import TrainedRun
from structattn.models import EncoderDecoder
from structattn.settings.model import reads_bos
from structattn.settings.tasks import MASKED_LANGUAGE_MODELING
from structattn.support.errors import UsageError
from structattn.support.progress import progress
from structattn.support.special_tokens import EOS, PAD
from structattn.tasks.losses import model_inputs, token_losses
from structattn.tasks.masked.scores import pseudo_log_likelihoods
from structattn.tasks.translation.predictions import predictions

DEPTHS = 10
_ROWS = 64  # masked copies of a text in one pass


@dataclass(frozen=True)
class RecordedExample:
    """What a run does on one example.

    Args:
        tokens: the input tokens; of a translation those of the decoder, the target.
        source: the source tokens of a translation; None otherwise.
        predicted: the token that is predicted at each input position, T of them; None where nothing is.
        surprisal: -log p of each predicted token in nats; NaN where nothing is predicted. p is given all tokens up to
            the position; in a masked language model given all other tokens; in a translation given the source, too.
        records: of all layers and heads, with the contents of stacks, and receptive fields.
        split: the split of the example; None for a given text.
        example: its index in the split.
        beam_search: the hypotheses of the search that found the translation, or the continuation of a text.
    """

    tokens: tuple[str, ...]
    source: tuple[str, ...] | None
    predicted: tuple[str | None, ...]
    surprisal: Float[np.ndarray, " time"]
    records: tuple[Record, ...]
    split: str | None = None
    example: int | None = None
    beam_search: RecordedBeamSearch | None = None


@dataclass(frozen=True)
class Recording:
    """Recorded examples of one run.

    Args:
        run: ``name`` of the run folder, ``task``, ``model`` (its kind) and ``update`` of the checkpoint.
        examples: in the order in which they were asked for.
    """

    run: Mapping[str, Any]
    examples: tuple[RecordedExample, ...]


def record(
    run: TrainedRun,
    texts: Sequence[str] = (),
    targets: Sequence[str] | None = None,
    *,
    examples: Sequence[int] = (),
    split: str = "test",
    depths: int = DEPTHS,
    beam: int | None = None,
    interventions: Sequence[Intervention] = (),
) -> Recording:
    """Record what a run does on examples of a split and on texts.

        recording = record(structattn.load("runs/dyck"), ["(())"], examples=[17])
        write_recording("dyck.json", recording)

    Args:
        run: of any kind.
        texts: as for ``TrainedRun.explain``; they follow the examples.
        targets: answers of a transduction or translations, one for each text; None: greedy search finds the answers,
            and translations are those of ``TrainedRun.translate``, recorded with the hypotheses of the beam search.
        examples: indices of sequences of the split in file order; of windows of a stream; of pairs.
        split: a split of the prepared folder.
        depths: the number of depths of stacks whose contents are computed, from the top; 0: none.
        beam: continue each text of a language model by a beam search of this size, as ``TrainedRun.generate`` does, and
            record the whole with the hypotheses of the search; None: record the texts as they are.
        interventions: heads that are switched off and actions that are forced, in all examples.

    Raises:
        DataError: a text or target cannot be encoded, or is too long for the model.
        UsageError: the split has no such example, an example or text has more than 1,024 tokens, or the task has no
            targets, or not one for each text, or ``beam`` is less than 1, or given for a run that does not continue
            texts, or an intervention does not fit the model, or there are interventions and a search.

    Cost: that of the operators' weights; the contents of a nondeterministic stack, O(depths · T^3).
    """
    for given in (texts, targets):
        require_no_string(given)
    if depths < 0:
        raise UsageError(f"depths is {depths}; expected at least 0")
    if beam is not None and targets is not None:
        raise UsageError("beam continues texts; it does not go with targets")
    searches = beam is not None or (bool(texts) and targets is None and isinstance(run.model, EncoderDecoder))
    if interventions and searches:
        raise UsageError("interventions change whole sequences; give each text its target, in place of a search")
    with intervened(run.model, interventions), progress("Recording", len(examples) + len(texts), "examples") as advance:
        recorded = list[RecordedExample]()
        for chosen in chain(_chosen_examples(run, examples, split), _chosen_texts(run, texts, targets, beam)):
            recorded.append(_recorded(run, chosen, depths))
            advance()
    return Recording(_about(run), tuple(recorded))


def record_examples(run: TrainedRun, examples: Sequence[int], split: str, depths: int = DEPTHS) -> Recording:
    """Record what a run does on examples of a split, as ``record`` does, without showing progress."""
    return Recording(
        _about(run), tuple(_recorded(run, each, depths) for each in _chosen_examples(run, examples, split))
    )


def _about(run: TrainedRun) -> dict[str, Any]:
    name, settings = run.run_dir.resolve().name, run.settings
    return {"name": name, "task": settings.task, "model": settings.model.kind, "update": run.update}


@dataclass(frozen=True)
class _Chosen:
    """A batch of size 1, and where it is from."""

    batch: Batch | PairBatch
    split: str | None = None
    example: int | None = None
    beam_search: RecordedBeamSearch | None = None


def _chosen_examples(run: TrainedRun, examples: Sequence[int], split: str) -> Iterator[_Chosen]:
    for index in examples:
        yield _Chosen(example_batch(run, split, index, MAX_TOKENS), split, index)


def _chosen_texts(
    run: TrainedRun, texts: Sequence[str], targets: Sequence[str] | None, beam: int | None
) -> Iterator[_Chosen]:
    for number, chosen in enumerate(_completed_texts(run, texts, targets, beam), start=1):
        _require_short(chosen.batch, number)
        yield chosen


def _completed_texts(
    run: TrainedRun, texts: Sequence[str], targets: Sequence[str] | None, beam: int | None
) -> Iterator[_Chosen]:
    """Yield the texts, continued or translated by a beam search where that is asked for."""
    if beam is not None:
        continued = (continued_text(run, text, beam, number) for number, text in enumerate(texts, start=1))
        yield from (_Chosen(batch, beam_search=search) for batch, search in continued)
    elif targets is None and isinstance(run.model, EncoderDecoder):
        pairs = (searched_pair(run, text, number) for number, text in enumerate(texts, start=1))
        yield from (_Chosen(pair, beam_search=search) for pair, search in pairs)
    else:
        yield from map(_Chosen, text_batches(run.model, run.prepared, run.settings, texts, targets))


def _require_short(batch: Batch | PairBatch, number: int) -> None:
    count = max(batch.inputs.shape[1], batch.source.shape[1] if isinstance(batch, PairBatch) else 0)
    if count > MAX_TOKENS:
        raise UsageError(f"text {number} has {count} tokens; expected at most {MAX_TOKENS}")


def _recorded(run: TrainedRun, chosen: _Chosen, depths: int) -> RecordedExample:
    source, batch = None, chosen.batch
    if isinstance(batch, PairBatch):
        vocabulary = run.prepared.sides.target.vocabulary
        source = tuple(run.prepared.sides.source.vocabulary.symbols[token] for token in batch.source[0].tolist())
    else:
        vocabulary = run.prepared.vocabulary
    symbols, targets = vocabulary.symbols, _targets(run, batch)
    return RecordedExample(
        tokens=tuple(symbols[token] for token in batch.inputs[0].tolist()),
        source=source,
        predicted=tuple(None if token == PAD else symbols[token] for token in targets.tolist()),
        surprisal=_surprisal(run, batch, targets),
        records=tuple(_records(run, batch, depths)),
        split=chosen.split,
        example=chosen.example,
        beam_search=chosen.beam_search,
    )


def _records(run: TrainedRun, batch: Batch | PairBatch, depths: int) -> list[Record]:
    """Return the records of all layers and heads, and the receptive fields."""
    records = example_records(run.model, run.prepared, batch, depths)
    last = max((record.layer for record in records if record.side != "encoder"), default=0)
    return [*records, *receptive_field_records(run, batch, last)]


def _is_masked_text(run: TrainedRun) -> bool:
    return run.settings.task == MASKED_LANGUAGE_MODELING


def _targets(run: TrainedRun, batch: Batch | PairBatch) -> np.ndarray:
    """Return the id that is predicted at each position, <pad> where none is.

    A masked language model predicts each token of the text itself.
    """
    ids = batch.targets[0].numpy()
    if not _is_masked_text(run):
        return ids
    inputs = batch.inputs[0].numpy().copy()
    inputs[inputs == EOS] = PAD
    if reads_bos(run.settings.model):
        inputs[0] = PAD
    return inputs


@torch.no_grad()
def _surprisal(run: TrainedRun, batch: Batch | PairBatch, targets: np.ndarray) -> np.ndarray:
    """Return -log p of each target; NaN where nothing is predicted."""
    if isinstance(batch, PairBatch):
        surprisal = predictions(run.model, batch).token_losses()[0].cpu().numpy()
    elif _is_masked_text(run):
        bos = reads_bos(run.settings.model)
        tokens = batch.inputs[0, int(bos) :].numpy()
        surprisal = np.full(len(targets), np.nan)
        size = run.prepared.vocabulary.size
        surprisal[targets != PAD] = -pseudo_log_likelihoods(run.model, tokens, size, bos, _ROWS)
    else:
        inputs, lengths, classes = model_inputs(run.model, batch)
        surprisal = token_losses(run.model(inputs, lengths=lengths), classes)[0].double().cpu().numpy()
    return np.where(targets == PAD, np.nan, surprisal)
