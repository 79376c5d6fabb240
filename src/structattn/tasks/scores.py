"""Scores: log-probabilities of given texts, and the scores of a split with their JSON form in a run folder."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from structattn.metrics.statistics import Proportion
from structattn.metrics.translation import MetricScore


@dataclass(frozen=True)
class TokenScore:
    """Log-probability of a token of a text, in nats.

    Args:
        token: as it stands in the vocabulary.
        log_probability: given the tokens before it, and the source of a translation; of a masked model, given all
            other tokens. That of an <unk> that is spelled includes its spelling.
    """

    token: str
    log_probability: float


@dataclass(frozen=True)
class Score:
    """Log-probability of a text, of a translation given its source, or pseudo-log-probability of a masked model.

    Args:
        log_probability: the sum over the tokens, in nats.
        num_tokens: <eos> included, but for masked models, which do not predict it; characters of spellings are not
            counted.
        tokens: the score of each token; None if not asked for.
    """

    log_probability: float
    num_tokens: int
    tokens: tuple[TokenScore, ...] | None = None


def score_of(symbols: Sequence[str], ids: Sequence[int], log_probs: Sequence[float], per_token: bool) -> Score:
    """Return the score of a text."""
    tokens = tuple(TokenScore(symbols[token], each) for token, each in zip(ids, log_probs, strict=True))
    return Score(sum(log_probs), len(ids), tokens if per_token else None)


@dataclass(frozen=True)
class DependencyScores:
    """Precision Σ s d / Σ s and recall Σ s d / Σ d of receptive fields s against the true dependencies d.

    The prediction of ``<eos>`` does not count. s is 0 or 1 for hard attention, and between 0 and 1 for weights, by the
    relaxed recursion. A prediction depends on the input ``<bos>`` (level 0) until the first digit.

    Args:
        predictions: the number of predictions.
        precision: over all predictions.
        recall: over all predictions.
        precision_of_symbols: precision without the input ``<bos>`` and without the first prediction.
        recall_of_symbols: recall without the input ``<bos>`` and without the first prediction.
        mean_precision: the mean of the precisions of single predictions.
        mean_recall: the mean of the recalls of single predictions.
        mean_field_size: the mean size of a receptive field.
    """

    predictions: int
    precision: float
    recall: float
    precision_of_symbols: float
    recall_of_symbols: float
    mean_precision: float
    mean_recall: float
    mean_field_size: float


@dataclass(frozen=True)
class TransformationScores:
    """Scores of a group of pairs; ``wrong`` is the linear rule, on the pairs whose target differs from the right one.

    Args:
        full_match: how often the greedy output is the target.
        full_match_wrong: how often it is the wrong target; None if the rules never differ, here and below.
        probability: mean of p(target <eos> | source).
        conditional_cross_entropy: -log p(target <eos> | source) in nats per token, <eos> counted.
        log_ratio: mean of log p(target <eos> | source) - log p(wrong target <eos> | source); positive: hierarchical.
        first_word: how often the first word of the greedy output is that of the target.
        first_word_wrong: how often it is that of the wrong target.
        first_word_probability: mean probability of the target's first word, given the source.
        first_word_probability_wrong: mean probability of the wrong target's first word.
        main_verb: for tense reinflection: how often the greedy output has the target's parts of speech and main verb.
        main_verb_wrong: how often it has those of the wrong target.
        main_verb_sampled: the same share of ten samples for each source whose targets differ.
        main_verb_sampled_wrong: the same for the wrong target.
    """

    full_match: Proportion
    full_match_wrong: Proportion | None
    probability: float
    conditional_cross_entropy: float
    log_ratio: float | None
    first_word: Proportion
    first_word_wrong: Proportion | None
    first_word_probability: float
    first_word_probability_wrong: float | None
    main_verb: Proportion | None
    main_verb_wrong: Proportion | None
    main_verb_sampled: float | None
    main_verb_sampled_wrong: float | None


@dataclass(frozen=True)
class MemberScores:
    """Language modeling of the members of a band of lengths, in nats per symbol, ``<eos>`` included.

    Args:
        num_sequences: the number of members.
        num_tokens: the number of their symbols, ``<eos>`` included.
        cross_entropy: -Σ log p(w <eos>) / num_tokens.
        lower_bound: that of the distribution that members are drawn from: within the lengths of training, with lengths
            that are uniform over those that training members have; beyond them given the length, which no model can
            know. None if it is unknown.
        cross_entropy_difference: cross_entropy - lower_bound.
        lower_bound_num_lengths: the number of those lengths; 1 if the bound is given the length.
    """

    num_sequences: int
    num_tokens: int
    cross_entropy: float
    lower_bound: float | None
    cross_entropy_difference: float | None
    lower_bound_num_lengths: int | None = None


@dataclass(frozen=True)
class RecognitionScores:
    """Accuracies of recognition: group or rule -> band of lengths, or ``all`` -> proportion with its interval.

    Args:
        groups: of the model, on ``all`` strings, ``members``, ``uniform negatives``, ``edited negatives`` and
            ``well-shaped negatives``, those that the language's rule of shape accepts, or, if it has none, those whose
            neighbouring symbols occur in training members. Groups and bands without strings are left out.
        rules: of trivial rules on all strings; see ``trivial_rules``.
        members: band of lengths -> language modeling of its members; None without such an output.
    """

    groups: dict[str, dict[str, Proportion]]
    rules: dict[str, dict[str, Proportion]]
    members: dict[str, MemberScores] | None = None


@dataclass(frozen=True)
class LengthScore:
    """Scores of the sequences of one length, in nats per token, ``<eos>`` included.

    Args:
        length: the number of tokens of each sequence; of the input, for transductions.
        num_sequences: the number of sequences.
        cross_entropy: -log p / (num_sequences · (length + 1)).
        lower_bound: -log p(strings | their length) / (num_sequences · (length + 1)) of the distribution that they were
            sampled from. The model predicts the length, too, so that the bound of the split is another one. None if
            it is unknown.
        cross_entropy_difference: cross_entropy - lower_bound.
        accuracy: the fraction of output symbols that are right under teacher forcing, for transductions.
        accuracy_greedy: the same with greedy decoding; None if all symbols are predicted at once.
        lower_bound_num_lengths: 1, as the bound is given the length; None without a bound.
    """

    length: int
    num_sequences: int
    cross_entropy: float
    lower_bound: float | None = None
    cross_entropy_difference: float | None = None
    accuracy: float | None = None
    accuracy_greedy: float | None = None
    lower_bound_num_lengths: int | None = None


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
        cross_entropy: -log p(split) / num_tokens.
        perplexity: exp(cross_entropy).
        lower_bound: the cross-entropy on these strings of the distribution that they were sampled from, with the L
            lengths of the split equally probable: [Σ -log p(w | |w|) + num_sequences · log L] / num_tokens. None if it
            is unknown.
        cross_entropy_difference: cross_entropy - lower_bound.
        lower_bound_num_lengths: L; 1 if the bound is given the length, as in ``by_length``; None without a bound.
        by_length: scores for each length; empty for a stream.
        accuracy: mean over lengths of the fraction of output symbols that are right under teacher forcing, for
            transductions; the fraction of right labels, for recognition.
        accuracy_greedy: the same with greedy decoding; None if all symbols are predicted at once.
        dependencies: agreement of receptive fields with the true dependencies, if these are known.
        translation: BLEU, chrF2 and TER, for translation.
        translation_alternatives: for a model that spells unknown words, the same metrics with ``<unk>`` kept ("keep")
            and with attended source words copied ("copy").
        translations_digest: the SHA-256 of the file with the translations.
        mask_seed: for masked language models, the seed of the masks; the tokens above are the masked ones.
        pseudo: for masked language models, pseudo-perplexity.
        transformation: for question formation and tense reinflection: ``all``, or the modifier of the subject -> scores
            of the outputs.
    """

    split: str
    num_sequences: int
    num_tokens: int
    cross_entropy: float
    perplexity: float
    lower_bound: float | None = None
    cross_entropy_difference: float | None = None
    lower_bound_num_lengths: int | None = None
    by_length: tuple[LengthScore, ...] = ()
    accuracy: float | None = None
    accuracy_greedy: float | None = None
    dependencies: DependencyScores | None = None
    translation: dict[str, MetricScore] | None = None
    translation_alternatives: dict[str, dict[str, MetricScore]] | None = None
    translations_digest: str | None = None
    mask_seed: int | None = None
    pseudo: PseudoPerplexity | None = None
    transformation: dict[str, TransformationScores] | None = None
    recognition: RecognitionScores | None = None
    text: TextScores | None = None


def scores_to_json(scores: SplitScores, **rest: Any) -> dict[str, Any]:
    """Return the scores and ``rest`` as one object that JSON can hold; numbers that are not finite become None."""
    # Mappings other than dictionaries are unknown to it.
    content: dict[str, Any] = to_jsonable_python({**asdict(scores), **rest}, inf_nan_mode="null", fallback=dict)
    return content
