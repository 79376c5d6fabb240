"""Recordings: attention weights, contents of stacks and receptive fields of examples and texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structattn.explorer.interventions import Intervention, intervened
from structattn.explorer.searched_text import (
    RecordedBeamSearch,
    continued_text,
    example_batch,
    require_short,
    searched_pair,
)
from structattn.loading.records import Record, layer_records, targets_of
from structattn.loading.trained_run import TrainedRun
from structattn.models import EncoderDecoder
from structattn.models.mode import evaluating
from structattn.support.devices import device_of
from structattn.support.environment import name_of
from structattn.support.errors import UsageError
from structattn.support.progress import progress
from structattn.support.shapes import Float
from structattn.support.special_tokens import FIRST_SYMBOL, PAD
from structattn.tasks.formal_languages.dependencies import has_dependencies, receptive_fields, true_dependencies
from structattn.tasks.loaded import require_no_string
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

RECEPTIVE_FIELD = "receptive_field"


def receptive_field_records(run: TrainedRun, batch: Batch | PairBatch, layer: int) -> list[Record]:
    """Return the receptive fields through all layers of a batch of size 1; those of pairs are under teacher forcing.

    ``layer`` is the index of the last layer, of a pair the last of the decoder. A sequence has one, (T, T), with the
    true dependencies if the language has known ones; a pair has two, (T, T) for target inputs and (T, S) for source
    inputs. There is none if a layer mixes positions without attention weights, as stacks do.
    """
    device = device_of(run.model)
    if isinstance(batch, PairBatch):
        return _pair_records(run, batch.to(device), layer)
    field = receptive_fields(run.model, batch.inputs.to(device))
    if field is None:
        return []
    tokens = _symbols(run.prepared.vocabulary, batch.inputs)
    truth = _truth(batch.inputs[0].cpu().numpy()) if has_dependencies(run.prepared) else None
    return [_field_record("receptive-field", field, layer, tokens, tokens, truth=truth)]


def _pair_records(run: TrainedRun, batch: PairBatch, layer: int) -> list[Record]:
    model, sides = translation_model(run), run.prepared.sides
    with evaluating(model), torch.no_grad():
        _, weights = model.attended_hidden_states(*model_inputs(model, batch))
    if layer_without_weights(model, weights) is not None:
        return []
    fields = pair_receptive_fields(weights, None, None)
    target = _symbols(sides.target.vocabulary, batch.inputs)
    source = _symbols(sides.source.vocabulary, batch.source)
    return [
        _field_record("receptive-field", fields.target, layer, target, target, side="decoder"),
        _field_record("source-receptive-field", fields.source, layer, target, source, side="decoder"),
    ]


def _field_record(
    sublayer: str, field: Tensor, layer: int, tokens: tuple[str, ...], sources: tuple[str, ...], **details: Any
) -> Record:
    weights = field[0].double().cpu().numpy()
    return Record(tokens, layer, sublayer, None, RECEPTIVE_FIELD, weights, sources, **details)


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
        interventions: heads and sublayers that are switched off and actions that are forced, in all examples; searches
            for answers, translations and continuations are without them, and then not recorded.

    Raises:
        DataError: a text or target cannot be encoded, or is too long for the model.
        UsageError: the split has no such example, an example or text has more than 1,024 tokens, or the task has no
            targets, or not one for each text, or ``beam`` is less than 1, or given for a run that does not continue
            texts, or an intervention does not fit the model.

    Cost: that of the operators' weights; the contents of a nondeterministic stack, O(depths · T^3).
    """
    for given in (texts, targets):
        require_no_string(given)
    if depths < 0:
        raise UsageError(f"depths is {depths}; expected at least 0")
    if beam is not None and targets is not None:
        raise UsageError("beam continues texts; it does not go with targets")
    if beam is not None and not texts:
        raise UsageError("beam continues texts; expected some")
    chosen: Iterable[_Chosen] = chain(_chosen_examples(run, examples, split), _chosen_texts(run, texts, targets, beam))
    if interventions:
        chosen = [replace(each, beam_search=None) for each in chosen]  # found without them
    with intervened(run.model, interventions), progress("Recording", len(examples) + len(texts), "examples") as advance:
        recorded = list[RecordedExample]()
        for each in chosen:
            recorded.append(_recorded(run, each, depths))
            advance()
    return Recording(_about(run), tuple(recorded))


def record_examples(run: TrainedRun, examples: Sequence[int], split: str, depths: int = DEPTHS) -> Recording:
    """Record what a run does on examples of a split, as ``record`` does, without showing progress."""
    return Recording(
        _about(run), tuple(_recorded(run, each, depths) for each in _chosen_examples(run, examples, split))
    )


def _about(run: TrainedRun) -> dict[str, Any]:
    name, settings = name_of(run.run_dir), run.settings
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
    """Yield the texts, continued or translated by a beam search where that is asked for."""
    explainer = kind_of(run).explainer(run)
    answers = targets_of(explainer, run, texts, targets)
    for number, (text, answer) in enumerate(zip(texts, answers, strict=True), start=1):
        batch: Batch | PairBatch
        search = None
        if beam is not None:
            batch, search = continued_text(run, text, beam, number)
        elif targets is None and isinstance(run.model, EncoderDecoder):
            batch, search = searched_pair(run, text, number)
        else:
            batch = explainer.text(text, answer, number)
        require_short(batch, f"text {number}")
        yield _Chosen(batch, beam_search=search)


def _recorded(run: TrainedRun, chosen: _Chosen, depths: int) -> RecordedExample:
    source, batch, explainer = None, chosen.batch, kind_of(run).explainer(run)
    if isinstance(batch, PairBatch):
        vocabulary = run.prepared.sides.target.vocabulary
        source = _symbols(run.prepared.sides.source.vocabulary, batch.source)
    else:
        vocabulary = run.prepared.vocabulary
    targets, surprisal = explainer.surprisal(batch)
    records = layer_records(explainer, batch, depths)
    last = max((record.layer for record in records if record.side != "encoder"), default=0)
    return RecordedExample(
        tokens=_symbols(vocabulary, batch.inputs),
        source=source,
        predicted=tuple(None if token == PAD else vocabulary.symbols[token] for token in targets.tolist()),
        surprisal=np.where(targets == PAD, np.nan, surprisal),
        records=(*records, *receptive_field_records(run, batch, last)),
        split=chosen.split,
        example=chosen.example,
        beam_search=chosen.beam_search,
    )
