"""Whether a model finds a translation more likely than the same with an error (You et al. 2020, section 6.2)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float

from structattn.data.contrastive import Contrast
from structattn.data.pair_batching import PairBatch, make_pair_batch
from structattn.data.parallel.sides import Side, Sides
from structattn.data.spelling import spelt_lines
from structattn.data.tokenizers import TextError, split_line
from structattn.decoding import in_batches
from structattn.evaluation.analyses import write_analysis
from structattn.evaluation.proportions import Proportion, proportion
from structattn.evaluation.runs import TrainedRun
from structattn.models import EncoderDecoder
from structattn.support.errors import DataError, UsageError
from structattn.support.progress import progress
from structattn.tasks.pair_predictions import predictions

BATCH_TOKENS = 4096
FARTHEST = 15  # words; what is farther apart is counted together, as LingEval97's own tool does


@dataclass(frozen=True)
class _Coded:
    """A source and a translation of it as ids, and as words where words without a number have spellings."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    words: tuple[tuple[str, ...], tuple[str, ...]] | None


@dataclass(frozen=True)
class ContrastiveScores:
    """How often the reference was strictly more likely; equally likely counts as wrong.

    Args:
        types: of each type of error, in the order in which they come.
        distances: type -> words between what must agree, ``0`` to ``15`` and ``>15`` -> those pairs; of types that
            tell distances.
        per_token: whether nats per token were compared rather than those of the whole translation.
    """

    types: dict[str, Proportion]
    distances: dict[str, dict[str, Proportion]]
    per_token: bool


def contrastive_nats(
    run: TrainedRun, contrasts: Sequence[Contrast], *, per_token: bool = False, batch_tokens: int = BATCH_TOKENS
) -> Float[np.ndarray, "pairs 2"]:
    """-log p(translation | source) of the reference and of the contrastive translation, <eos> counted.

    Args:
        run: a translation run; lines become ids, and rare words spellings, as they did for training.
        contrasts: the pairs.
        per_token: divide by the number of tokens, <eos> counted; characters of spellings are none.
        batch_tokens: the largest padded size of a batch.

    Cost: each different translation of a source is scored once, so that what looks the same to the model is equally
    likely; memory for batch_tokens * classes numbers.

    Raises:
        UsageError: the run is no translation run.
        DataError: a line has no encoding; the message names it.
    """
    if not isinstance(run.model, EncoderDecoder):
        raise UsageError(f"{run.folder}: a model of kind {run.settings.model.kind!r} does not translate")
    coded = [
        _coded(run.prepared.sides, each, text) for each in contrasts for text in (each.reference, each.contrastive)
    ]
    different = list(dict.fromkeys(coded))
    with progress("Scoring translations", len(different), "translations") as advance:
        found = _scored(run, different, per_token, batch_tokens, advance)
    nats = dict(zip(different, found, strict=True))
    return np.array([nats[each] for each in coded], np.float64).reshape(-1, 2)


def contrastive_scores(
    contrasts: Sequence[Contrast], nats: Float[np.ndarray, "pairs 2"], *, per_token: bool = False
) -> ContrastiveScores:
    """How often the reference's nats are fewer, by type and by distance.

    Args:
        contrasts: the pairs.
        nats: of their two translations.
        per_token: what the nats are, for the record.
    """
    right = nats[:, 0] < nats[:, 1]
    types = _grouped([each.kind for each in contrasts], right)
    distances = {}
    for kind in types:
        told = [n for n, each in enumerate(contrasts) if each.kind == kind and each.distance is not None]
        told.sort(key=lambda n: contrasts[n].distance or 0)
        if told:
            distances[kind] = _grouped([_distance(contrasts[n]) for n in told], right[told])
    return ContrastiveScores(types, distances, per_token)


def write_contrastive(run: TrainedRun, name: str, scores: ContrastiveScores) -> Path:
    """Keep the scores as ``analyses/contrastive-NAME.json`` in the run's folder, NAME being that of the pairs."""
    content = {"name": name, "update": run.update, "prepared_digest": run.prepared.digest, **asdict(scores)}
    return write_analysis(run.folder, f"contrastive-{name}", "contrastive", content)


def _coded(sides: Sides, contrast: Contrast, translation: str) -> _Coded:
    texts = sides.source.normalization(contrast.source), sides.target.normalization(translation)
    source, target = (
        _ids(side, text, contrast) for side, text in zip((sides.source, sides.target), texts, strict=True)
    )
    if sides.target.speller is None:
        return _Coded(source, target, None)
    return _Coded(source, target, (_words(texts[0]), _words(texts[1])))


def _words(text: str) -> tuple[str, ...]:
    return tuple(split_line("word", text))


def _ids(side: Side, text: str, contrast: Contrast) -> tuple[int, ...]:
    try:
        return tuple(side.tokenizer.encode(text))
    except TextError as error:
        raise DataError(contrast.path, f"{text!r:.60}: {error.reason}", contrast.line) from None


def _scored(
    run: TrainedRun, pairs: Sequence[_Coded], per_token: bool, batch_tokens: int, advance: Callable[[int], object]
) -> list[float]:
    def score(batch: list[_Coded]) -> list[float]:
        made = _batch(run.prepared.sides, batch)
        with torch.no_grad():
            nats = predictions(run.model, made).nats_of_rows().cpu()
        advance(len(batch))
        values: list[float] = (nats / made.lengths if per_token else nats).tolist()
        return values

    lengths = [max(len(pair.source), len(pair.target)) + 1 for pair in pairs]
    return in_batches(pairs, lengths, batch_tokens, score)


def _batch(sides: Sides, pairs: list[_Coded]) -> PairBatch:
    batch = make_pair_batch([(np.array(pair.source), np.array(pair.target)) for pair in pairs], range(len(pairs)))
    if sides.source.speller is None or sides.target.speller is None:
        return batch
    words = [pair.words or ((), ()) for pair in pairs]
    sources, targets = [its[0] for its in words], [its[1] for its in words]
    return replace(
        batch,
        source_words=spelt_lines(sources, [p.source for p in pairs], batch.source.shape[1], sides.source.speller),
        target_words=spelt_lines(targets, [p.target for p in pairs], batch.targets.shape[1], sides.target.speller),
    )


def _distance(contrast: Contrast) -> str:
    distance = contrast.distance or 0
    return str(distance) if distance <= FARTHEST else f">{FARTHEST}"


def _grouped(names: Sequence[str], right: Bool[np.ndarray, " pairs"]) -> dict[str, Proportion]:
    """The part that is right under each name, in the order in which the names come."""
    groups: dict[str, list[bool]] = {}
    for name, outcome in zip(names, right.tolist(), strict=True):
        groups.setdefault(name, []).append(outcome)
    return {name: proportion(outcomes) for name, outcomes in groups.items()}
