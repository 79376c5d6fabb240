"""Recordings: attention weights, contents of stacks and receptive fields of examples and texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from structattn.explorer.interventions import Intervention, intervened
from structattn.explorer.searched_text import (
    RecordedBeamSearch,
    continued_text,
    example_batch,
    require_short,
    searched_pair,
)
from structattn.loading.records import Record
from structattn.loading.trained_run import TrainedRun, layer_records, targets_of
from structattn.models import EncoderDecoder
from structattn.models.mode import evaluating
from structattn.support.errors import UsageError
from structattn.support.progress import progress
from structattn.support.special_tokens import FIRST_SYMBOL, PAD
from structattn.tasks.formal_languages.dependencies import has_dependencies, receptive_fields, true_dependencies
from structattn.tasks.loaded import Explainer, require_no_string
from structattn.tasks.registry import kind_of
from structattn.tasks.translation.predictions import (
    layer_without_weights,
    model_inputs,
    pair_receptive_fields,
    translation_model,
)
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Batch
from structattn.text.tokenization.vocabulary import Vocabulary

MECHANISM = "receptive_field"


def receptive_field_records(run: TrainedRun, batch: Batch | PairBatch, layer: int) -> list[Record]:
    """Return the receptive fields of a batch of size 1 through all layers.

    Args:
        run: the trained run.
        batch: a sequence, or a pair, explained under teacher forcing.
        layer: the index of the last layer, of a pair the last of the decoder.

    Returns:
        For a sequence one record, (T, T), with the true dependencies if the language has known ones. For a pair two,
        (T, T) for target inputs and (T, S) for source inputs. None if a layer mixes positions without attention
        weights, as stacks do.
    """
    if isinstance(batch, PairBatch):
        return _pair_records(run, batch, layer)
    return _sequence_records(run, batch.inputs, layer)


def _sequence_records(run: TrainedRun, inputs: Tensor, layer: int) -> list[Record]:
    field = receptive_fields(run.model, inputs.to(next(run.model.parameters()).device))
    if field is None:
        return []
    tokens = _symbols(run.prepared.vocabulary, inputs)
    return [
        Record(
            tokens=tokens,
            layer=layer,
            sublayer="receptive-field",
            head=None,
            mechanism=MECHANISM,
            weights=field[0].double().cpu().numpy(),
            sources=tokens,
            truth=_truth(inputs[0].cpu().numpy()) if has_dependencies(run.prepared) else None,
        )
    ]


def _pair_records(run: TrainedRun, pair: PairBatch, layer: int) -> list[Record]:
    model, sides = translation_model(run), run.prepared.sides
    batch = pair.to(next(model.parameters()).device)
    with evaluating(model), torch.no_grad():
        _, weights = model.attended_hidden_states(*model_inputs(model, batch))
    if layer_without_weights(model, weights) is not None:
        return []
    fields = pair_receptive_fields(weights, None, None)
    target = _symbols(sides.target.vocabulary, batch.inputs)
    source = _symbols(sides.source.vocabulary, batch.source)
    kinds = (("receptive-field", fields.target, target), ("source-receptive-field", fields.source, source))
    return [
        Record(
            tokens=target,
            layer=layer,
            sublayer=sublayer,
            head=None,
            mechanism=MECHANISM,
            weights=field[0].double().cpu().numpy(),
            sources=inputs,
            side="decoder",
        )
        for sublayer, field, inputs in kinds
    ]


def _symbols(vocabulary: Vocabulary, ids: Tensor) -> tuple[str, ...]:
    return tuple(vocabulary.symbols[token] for token in ids[0].tolist())


def _truth(inputs: np.ndarray) -> np.ndarray:
    """Return the true dependencies of the prediction after each input; a placeholder follows the last input."""
    return true_dependencies(np.append(inputs[1:] - FIRST_SYMBOL, 0))


DEPTHS = 10


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
        yield _Chosen(example_batch(run, split, index), split, index)


def _chosen_texts(
    run: TrainedRun, texts: Sequence[str], targets: Sequence[str] | None, beam: int | None
) -> Iterator[_Chosen]:
    for number, chosen in enumerate(_completed_texts(run, texts, targets, beam), start=1):
        require_short(chosen.batch, f"text {number}")
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
        explainer = kind_of(run).explainer(run)
        given = zip(texts, targets_of(explainer, run, texts, targets), strict=True)
        yield from (_Chosen(explainer.text(*pair, number)) for number, pair in enumerate(given, start=1))


def _recorded(run: TrainedRun, chosen: _Chosen, depths: int) -> RecordedExample:
    source, batch = None, chosen.batch
    if isinstance(batch, PairBatch):
        vocabulary = run.prepared.sides.target.vocabulary
        source = tuple(run.prepared.sides.source.vocabulary.symbols[token] for token in batch.source[0].tolist())
    else:
        vocabulary = run.prepared.vocabulary
    symbols, explainer = vocabulary.symbols, kind_of(run).explainer(run)
    targets, surprisal = explainer.surprisal(batch)
    return RecordedExample(
        tokens=tuple(symbols[token] for token in batch.inputs[0].tolist()),
        source=source,
        predicted=tuple(None if token == PAD else symbols[token] for token in targets.tolist()),
        surprisal=np.where(targets == PAD, np.nan, surprisal),
        records=tuple(_records(run, explainer, batch, depths)),
        split=chosen.split,
        example=chosen.example,
        beam_search=chosen.beam_search,
    )


def _records(run: TrainedRun, explainer: Explainer, batch: Batch | PairBatch, depths: int) -> list[Record]:
    """Return the records of all layers and heads, and the receptive fields."""
    records = layer_records(explainer, batch, depths)
    last = max((record.layer for record in records if record.side != "encoder"), default=0)
    return [*records, *receptive_field_records(run, batch, last)]
