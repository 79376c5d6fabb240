"""Difference in BLEU between two systems for bins of sentences, with bootstrap intervals (You et al. 2020, 6.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from structattn.metrics.bleu_statistics import BleuStatistics, bleu_statistics
from structattn.support.seeds import numpy_generator

REFERENCE_LENGTH = "reference length"
_SEED = 12345
Values = Float[np.ndarray, " sentences"]


@dataclass(frozen=True)
class Bin:
    """A bin of sentences.

    Args:
        low: the minimum of their values.
        high: the maximum of their values.
        members: the indices of the sentences.
    """

    low: float
    high: float
    members: NDArray[np.int64]


def equal_count_bins(values: Values, count: int = 5) -> list[Bin]:
    """Bins of equal size, split at quantiles; equal values share a bin, and empty bins are dropped."""
    return _split_at(values, np.quantile(values, np.arange(1, count) / count) if len(values) else values)


def equal_width_bins(values: Values, count: int = 5) -> list[Bin]:
    """Bins of equal width between the minimum and the maximum; empty bins are dropped."""
    return _split_at(values, np.linspace(values.min(), values.max(), count + 1)[1:-1] if len(values) else values)


BINNINGS: Mapping[str, Callable[[Values], list[Bin]]] = MappingProxyType(
    {"equal count": equal_count_bins, "equal width": equal_width_bins}
)
"""Name -> function that puts sentences into bins."""


def _split_at(values: Values, edges: NDArray[np.float64]) -> list[Bin]:
    """Split at edges; a value equal to an edge belongs to the bin below it."""
    indices = np.searchsorted(edges, values, side="left")
    found = [np.flatnonzero(indices == index) for index in np.unique(indices)]
    return [Bin(float(values[members].min()), float(values[members].max()), members) for members in found]


@dataclass(frozen=True)
class BinDifference:
    """BLEU of two systems on the sentences of one bin.

    Args:
        attribute: the sentence attribute that defines the bins: ``reference length``, in sacrebleu's words, or another.
        binning: ``equal count`` or ``equal width``.
        low: the minimum of the attribute in the bin.
        high: the maximum of the attribute in the bin.
        sentences: the number of sentences.
        base: BLEU of the base system.
        other: BLEU of the other system.
        difference: other - base.
        lower: lower end of the difference's 95 % interval, by paired bootstrap resampling of the bin's sentences.
        upper: upper end of that interval.
    """

    attribute: str
    binning: str
    low: float
    high: float
    sentences: int
    base: float
    other: float
    difference: float
    lower: float
    upper: float


def differences_by_bin(
    base: Sequence[str],
    other: Sequence[str],
    references: Sequence[str],
    numbers: dict[str, Values] | None = None,
    samples: int = 1000,
    tokenizer: str = "13a",
) -> list[BinDifference]:
    """Return the differences by reference length, in quintiles, and by other attributes, in five bins of either kind.

    Args:
        base: the translations of the base system.
        other: the translations of the other system.
        references: one reference per line.
        numbers: attribute -> its value for each sentence.
        samples: the number of bootstrap samples, drawn with a fixed seed.
        tokenizer: the name of sacrebleu's tokenizer.

    Cost: each sentence's n-grams are counted once; then samples * sentences for each binning.

    Raises:
        UsageError: sacrebleu is not installed.
        ValueError: the numbers of lines differ.
    """
    one, two = (bleu_statistics(lines, references, tokenizer) for lines in (base, other))
    wanted = [(REFERENCE_LENGTH, "equal count", one.reference_words.astype(np.float64))]
    wanted += [(name, binning, values) for name, values in (numbers or {}).items() for binning in BINNINGS]
    return [
        _difference(one, two, attribute, binning, found, samples)
        for attribute, binning, values in wanted
        for found in BINNINGS[binning](_require_one_per_sentence(values, len(references), attribute))
    ]


def _require_one_per_sentence(values: Values, sentences: int, attribute: str) -> Values:
    if len(values) != sentences:
        raise ValueError(f"{attribute}: {len(values)} numbers for {sentences} sentences; expected one per sentence")
    return values


def _difference(
    one: BleuStatistics, two: BleuStatistics, attribute: str, binning: str, found: Bin, samples: int
) -> BinDifference:
    base, other = (BleuStatistics(each.counts[found.members]) for each in (one, two))
    every = np.ones(len(found.members), dtype=np.int64)
    counts = _bootstrap_counts(len(found.members), samples)
    spread: Float[np.ndarray, " samples"] = other.resampled(counts) - base.resampled(counts)
    lower, upper = np.quantile(spread, (0.025, 0.975)).tolist()
    values = base.bleu(every), other.bleu(every)
    return BinDifference(
        attribute, binning, found.low, found.high, len(found.members), *values, values[1] - values[0], lower, upper
    )


def _bootstrap_counts(sentences: int, samples: int) -> Int64[np.ndarray, "samples sentences"]:
    """Return how often each sentence occurs in each bootstrap sample."""
    shares = np.full(sentences, 1 / sentences)
    return numpy_generator(_SEED, "bootstrap").multinomial(sentences, shares, size=samples)
