"""The scores of one split, and their JSON form in a run folder."""

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from structattn.metrics.statistics import lower_bound
from structattn.metrics.translation import MetricScore
from structattn.tasks.formal_languages.dependencies import DependencyScores
from structattn.tasks.language_modeling.evaluate import NegativeLogLikelihoods
from structattn.tasks.task import perplexity
from structattn.tasks.transformations.evaluate import TransformationScores
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.folders.sequences import Sequences
from structattn.text.folders.text_statistics import LARGE_UNKNOWN_SHARE, text_statistics, unknown_share

_LOGGER = logging.getLogger("structattn")


@dataclass(frozen=True)
class LengthScore:
    """Scores of the sequences of one length, in nats per token, ``<eos>`` included.

    Args:
        length: the number of tokens of each sequence; of the input, for transductions.
        num_sequences: the number of sequences.
        cross_entropy: -log p / (num_sequences · (length + 1)).
        lower_bound: the entropy of the true distribution given the length (N = 1); None if unknown.
        cross_entropy_difference: cross_entropy - lower_bound.
        accuracy: the fraction of output symbols that are right under teacher forcing, for transductions.
        accuracy_greedy: the same with greedy decoding; None if all symbols are predicted at once.
    """

    length: int
    num_sequences: int
    cross_entropy: float
    lower_bound: float | None
    cross_entropy_difference: float | None
    accuracy: float | None = None
    accuracy_greedy: float | None = None


@dataclass(frozen=True)
class PseudoPerplexity:
    """Scores of a masked language model that predicts each token from all others (Salazar et al. 2020).

    Args:
        num_sequences: the number of sentences or windows.
        num_tokens: the number of their tokens, without ``<eos>``.
        cross_entropy: -Σ log p(w_t | all other tokens) / num_tokens.
        perplexity: exp(cross_entropy).
    """

    num_sequences: int
    num_tokens: int
    cross_entropy: float
    perplexity: float


@dataclass(frozen=True)
class TextScores:
    """Scores of text that do not depend on its tokens, and the share of tokens that are unknown.

    The ends of lines, which ``<eos>`` stands for, count as a word, character and byte each. Where the text was cut into
    blocks, the ratio of tokens to words is that of the whole text.

    Args:
        unknown_share: the share of ``<unk>`` among the tokens, from 0 to 1.
        perplexity_per_word: exp of nats per word; None at level ``word``, where it is the perplexity.
        bits_per_character: bits per code point.
        bits_per_byte: bits per byte of UTF-8.
    """

    unknown_share: float | None
    perplexity_per_word: float | None = None
    bits_per_character: float | None = None
    bits_per_byte: float | None = None


@dataclass(frozen=True)
class SplitScores:
    """The scores of a model on a split, in nats per token, with every ``<eos>`` counted as a token.

    Args:
        split: the name of the split.
        num_sequences: the number of sequences.
        num_tokens: the number of predicted tokens.
        cross_entropy: -log p(split) / num_tokens.
        perplexity: exp(cross_entropy).
        lower_bound: the entropy of the distribution that the strings were sampled from; None if unknown.
        cross_entropy_difference: cross_entropy - lower_bound.
        by_length: scores for each length; empty for a stream.
        accuracy: mean over lengths of the fraction of output symbols that are right under teacher forcing, for
            transductions.
        accuracy_greedy: the same with greedy decoding; None if all symbols are predicted at once.
        dependencies: agreement of receptive fields with the true dependencies, if these are known.
        translation: BLEU, chrF2 and TER, for translation.
        translation_alternatives: for a model that spells unknown words, the same metrics with ``<unk>`` kept ("keep")
            and with attended source words copied ("copy").
        translations_digest: the SHA-256 of the file with the translations.
        mask_seed: for masked language models, the seed of the masks; the tokens above are the masked ones.
        pseudo: for masked language models, pseudo-perplexity.
        text: for text, scores per word and character, and the share of ``<unk>``.
        transformation: for question formation and tense reinflection: ``all``, or the modifier of the subject -> scores
            of the outputs.
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
    translation_alternatives: dict[str, dict[str, MetricScore]] | None = None
    translations_digest: str | None = None
    mask_seed: int | None = None
    pseudo: PseudoPerplexity | None = None
    transformation: dict[str, TransformationScores] | None = None
    text: TextScores | None = None


def scores_by_length(negative_log_likelihoods: NegativeLogLikelihoods, sequences: Sequences) -> list[LengthScore]:
    """Return the scores of each length that occurs, in increasing order.

    The bound is conditioned on the length, which the model has to predict: a perfect model of strings with N equally
    probable lengths stays log N / (length + 1) above it (DuSell & Chiang 2024, section 6).
    """
    lengths = sequences.lengths
    return [_length_score(int(length), negative_log_likelihoods, sequences) for length in np.unique(lengths)]


def _length_score(length: int, negative_log_likelihoods: NegativeLogLikelihoods, sequences: Sequences) -> LengthScore:
    chosen = sequences.lengths == length
    count = int(chosen.sum())
    cross_entropy = float(negative_log_likelihoods[chosen].sum() / (count * (length + 1)))
    if sequences.log_probabilities is None:
        return LengthScore(length, count, cross_entropy, None, None)
    bound = lower_bound(sequences.log_probabilities[chosen], sequences.lengths[chosen], num_lengths=1)
    return LengthScore(length, count, cross_entropy, bound, cross_entropy - bound)


def _split_lower_bound(prepared: PreparedFolder, split: str, sequences: Sequences) -> float | None:
    number = prepared.header.extra.get("number_of_lengths", {}).get(split)
    if sequences.log_probabilities is None or number is None or not len(sequences):
        return None
    return lower_bound(sequences.log_probabilities, sequences.lengths, number)


def make_split_scores(
    prepared: PreparedFolder, split: str, negative_log_likelihoods: NegativeLogLikelihoods
) -> SplitScores:
    """Return the scores of a split, given -log p of its sequences, or of the windows of a stream."""
    sequences = prepared.split(split)
    num_tokens = sequences.num_targets
    cross_entropy = float(negative_log_likelihoods.sum() / num_tokens) if num_tokens else 0.0  # an empty sum
    bound = _split_lower_bound(prepared, split, sequences)
    return SplitScores(
        split=split,
        num_sequences=len(sequences),
        num_tokens=num_tokens,
        cross_entropy=cross_entropy,
        perplexity=perplexity(cross_entropy),
        lower_bound=bound,
        cross_entropy_difference=None if bound is None else cross_entropy - bound,
        by_length=() if prepared.kind == "stream" else tuple(scores_by_length(negative_log_likelihoods, sequences)),
    )


def make_text_scores(prepared: PreparedFolder, split: str, cross_entropy: float | None) -> TextScores | None:
    """Return the scores of a split of text.

    Args:
        prepared: the prepared folder.
        split: the name of the split.
        cross_entropy: in nats per token, ``<eos>`` included; None if a model gives no probability of the text.

    Returns:
        The scores; None for data other than text. Scores are None if the folder does not state the size of its text.
    """
    share = unknown_share(prepared, split)
    if share is None or prepared.kind not in ("sentences", "stream"):
        return None
    if share > LARGE_UNKNOWN_SHARE:
        _LOGGER.warning(
            "%.1f %% of the tokens of %s are <unk>, so scores say little about its text", 100 * share, split
        )
    size = text_statistics(prepared, split)
    if size is None or cross_entropy is None:
        return TextScores(share)
    bits = cross_entropy / math.log(2)
    subword = prepared.header.tokenizer["level"] != "word"
    return TextScores(
        share,
        perplexity(cross_entropy * size.targets_per_word) if subword else None,
        bits * size.targets_per_character,
        bits * size.targets_per_byte,
    )


def _finite(value: Any) -> Any:
    """Replace numbers that JSON cannot hold, such as an overflowed perplexity or NaN, by None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def scores_to_json(scores: SplitScores, **rest: Any) -> dict[str, Any]:
    """Return the scores and ``rest`` as one object that JSON can hold."""
    found: dict[str, Any] = _finite({**asdict(scores), **rest})
    return found
