"""The scores of one split, and the JSON that a run folder keeps of them."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from structattn.data.folders.prepared import PreparedFolder, Sequences
from structattn.data.formal_languages.bound import lower_bound
from structattn.evaluation.by_length import LengthScore, scores_by_length
from structattn.evaluation.cross_entropy import Nats
from structattn.evaluation.dependencies import DependencyScores
from structattn.metrics.translation import MetricScore
from structattn.tasks.next_token.scores import perplexity


@dataclass(frozen=True)
class SplitScores:
    """What a model reaches on a split, in nats per symbol, every ``<eos>`` counted as a symbol.

    Args:
        split: its name.
        num_sequences: how many sequences it has.
        num_tokens: how many tokens were predicted.
        cross_entropy: -log p(split) / num_tokens.
        perplexity: exp(cross_entropy).
        lower_bound: the cross-entropy of the distribution that the strings were drawn from, where it is known.
        cross_entropy_difference: what the model needs more than that.
        by_length: the same for each length; empty for a stream, whose lines are not read one by one.
        accuracy: the part of the answers' symbols that is right, where answers are asked for; the mean over lengths.
        accuracy_greedy: the same if the model reads its own answers; None where it answers all at once.
        translation: BLEU, chrF2 and TER, where lines are translated.
        otherwise: the same with ``<unk>`` kept ("keep"), and with attended source words copied ("copy"), where a model
            spells.
        dependencies: how well receptive fields agree with what each symbol depends on, where that is known.
    """

    split: str
    num_sequences: int
    num_tokens: int
    cross_entropy: float
    perplexity: float
    lower_bound: float | None
    cross_entropy_difference: float | None
    by_length: tuple[LengthScore, ...]
    accuracy: float | None = None
    accuracy_greedy: float | None = None
    dependencies: DependencyScores | None = None
    translation: dict[str, MetricScore] | None = None
    otherwise: dict[str, dict[str, MetricScore]] | None = None


def _bound(prepared: PreparedFolder, split: str, sequences: Sequences) -> float | None:
    number = prepared.header.extra.get("number_of_lengths", {}).get(split)
    if sequences.log_probabilities is None or number is None or not len(sequences):
        return None
    return lower_bound(sequences.log_probabilities, sequences.lengths, number)


def scores_of(prepared: PreparedFolder, split: str, nats: Nats) -> SplitScores:
    """The scores of a split from -log p of its sequences, or of the windows of a stream."""
    sequences = prepared.split(split)
    num_tokens = sequences.target_count
    cross_entropy = float(nats.sum() / num_tokens) if num_tokens else 0.0  # an empty sum
    bound = _bound(prepared, split, sequences)
    return SplitScores(
        split=split,
        num_sequences=len(sequences),
        num_tokens=num_tokens,
        cross_entropy=cross_entropy,
        perplexity=perplexity(cross_entropy),
        lower_bound=bound,
        cross_entropy_difference=None if bound is None else cross_entropy - bound,
        by_length=() if prepared.kind == "stream" else tuple(scores_by_length(nats, sequences)),
    )


def _finite(value: Any) -> Any:
    """The same tree with null for numbers that JSON cannot hold: an overflowed perplexity, or NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def scores_to_json(scores: SplitScores, **rest: Any) -> str:
    """The scores and ``rest`` as one JSON object."""
    return json.dumps(_finite({**asdict(scores), **rest}), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
