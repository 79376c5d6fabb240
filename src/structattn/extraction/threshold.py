"""The probability that separates the symbols that can follow from those that cannot."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from structattn.extraction.stacks import Observation

LOW, HIGH = 1e-5, 0.2
MIN_FACTOR = 5.0
"""Of a gap that separates."""
FALLBACK = 0.01
"""Of probabilities of sampled symbols, where no gap separates."""


@dataclass(frozen=True)
class Threshold:
    """A threshold of probabilities.

    Args:
        value: τ: what has a higher probability can follow.
        factor: the ratio of the probabilities on both sides of the widest gap.
        low, high: the two probabilities.
    """

    value: float
    factor: float
    low: float
    high: float

    @property
    def separates(self) -> bool:
        """Whether the gap is wide: otherwise ``value`` is a convention."""
        return self.factor >= MIN_FACTOR


def find_threshold(observations: Sequence[Observation]) -> Threshold:
    """Return the middle of the widest gap of log p between 1e-5 and 0.2, over all symbols after all prefixes.

    Where the gap is narrower than a factor of ``MIN_FACTOR``, the threshold is ``FALLBACK``.
    """
    logs = np.concatenate([each.log_probabilities.ravel() for each in observations])
    edges = np.sort(logs.clip(np.log(LOW), np.log(HIGH)))  # lower and higher ones are on the sides of any gap
    widths = np.diff(edges)
    widest = int(widths.argmax())
    low, high = edges[widest], edges[widest + 1]
    factor = float(np.exp(high - low))
    value = float(np.exp((low + high) / 2)) if factor >= MIN_FACTOR else FALLBACK
    return Threshold(value, factor, float(np.exp(low)), float(np.exp(high)))


def best_threshold(allowed: Sequence[float], forbidden: Sequence[float]) -> float:
    """Return the threshold between ``LOW`` and ``HIGH`` that separates most of pairs of probabilities.

    Args:
        allowed: the lowest probability of what can follow each prefix.
        forbidden: the highest one of what cannot.
    """
    pairs = np.log(np.clip([allowed, forbidden], LOW, HIGH))
    low, high = pairs[1][pairs[1] < pairs[0]], pairs[0][pairs[1] < pairs[0]]
    if not len(low):
        return FALLBACK
    edges = np.unique([*low, *high])
    counts = np.searchsorted(np.sort(low), edges[:-1], "right") - np.searchsorted(np.sort(high), edges[:-1], "right")
    best = int(counts.argmax())
    return float(np.exp((edges[best] + edges[best + 1]) / 2))
