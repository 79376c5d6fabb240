"""How much better or worse one system's BLEU is than another's, in bins of sentences (You et al. 2020, section 6.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from structattn.evaluation.bins import CUTS, Bin, Values
from structattn.metrics.bleu_statistics import BleuStatistics, bleu_statistics
from structattn.support.seeds import numpy_generator

REFERENCE_LENGTH = "reference length"
_SEED = 12345


@dataclass(frozen=True)
class BinDifference:
    """Two systems' BLEU on the sentences of one bin.

    Args:
        by: the number by which sentences were put into bins: ``reference length``, in words as sacrebleu parts them,
            or another that was given.
        cut: ``equal count`` or ``equal width``.
        low: the least number in the bin.
        high: the greatest.
        sentences: how many there are.
        base: BLEU of the one system.
        other: of the other.
        difference: other - base.
        least: where the difference's 95 % interval begins, by paired bootstrap resampling of the bin's sentences.
        most: where it ends.
    """

    by: str
    cut: str
    low: float
    high: float
    sentences: int
    base: float
    other: float
    difference: float
    least: float
    most: float


def differences_by_bin(
    base: Sequence[str],
    other: Sequence[str],
    references: Sequence[str],
    numbers: dict[str, Values] | None = None,
    samples: int = 1000,
    tokenizer: str = "13a",
) -> list[BinDifference]:
    """The differences by reference length, in quintiles, and by other numbers, in five bins cut in both ways.

    Args:
        base: one system's translations.
        other: the other's.
        references: one for each line.
        numbers: name -> a number for each sentence.
        samples: resampled corpora for the intervals, drawn from a fixed seed.
        tokenizer: sacrebleu's name of how words are parted.

    Cost: each sentence's n-grams are counted once; then samples * sentences for each way of cutting.

    Raises:
        UsageError: sacrebleu is not installed.
        ValueError: there are not as many of each.
    """
    one, two = (bleu_statistics(lines, references, tokenizer) for lines in (base, other))
    wanted = [(REFERENCE_LENGTH, "equal count", one.reference_words.astype(np.float64))]
    wanted += [(name, cut, values) for name, values in (numbers or {}).items() for cut in CUTS]
    return [
        _difference(one, two, by, cut, found, samples)
        for by, cut, values in wanted
        for found in CUTS[cut](_as_many(values, len(references), by))
    ]


def _as_many(values: Values, sentences: int, by: str) -> Values:
    if len(values) != sentences:
        raise ValueError(f"{by}: {len(values)} numbers for {sentences} sentences; expected as many")
    return values


def _difference(one: BleuStatistics, two: BleuStatistics, by: str, cut: str, found: Bin, samples: int) -> BinDifference:
    base, other = (BleuStatistics(each.counts[found.members]) for each in (one, two))
    every = np.ones(len(found.members), dtype=np.int64)
    drawn = _drawn(len(found.members), samples)
    spread: Float[np.ndarray, " samples"] = other.resampled(drawn) - base.resampled(drawn)
    least, most = np.quantile(spread, (0.025, 0.975)).tolist()
    values = base.bleu(every), other.bleu(every)
    return BinDifference(
        by, cut, found.low, found.high, len(found.members), *values, values[1] - values[0], least, most
    )


def _drawn(sentences: int, samples: int) -> Int64[np.ndarray, "samples sentences"]:
    """How often each sentence occurs in each resampled corpus."""
    shares = np.full(sentences, 1 / sentences)
    return numpy_generator(_SEED, "bootstrap").multinomial(sentences, shares, size=samples)
