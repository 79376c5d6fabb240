"""The probability that separates the symbols that can follow from those that cannot."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from structattn.extraction.stacks import Observation

LOW, HIGH = 1e-5, 0.2
MIN_FACTOR = 5.0
"""Of a gap that separates."""
FALLBACK = 0.01
"""Of probabilities of sampled symbols, where no gap separates; half an equal share in alphabets above 50 symbols."""
Origin = Literal["gap", "given", "fallback", "fitted"]


def fallback_of(num_classes: int) -> float:
    """Return the threshold of sampled symbols where no gap separates, given the number of symbols and the end."""
    return min(FALLBACK, 0.5 / num_classes)


@dataclass(frozen=True)
class Threshold:
    """A threshold of probabilities.

    Args:
        value: τ: what has a higher probability can follow.
        factor: the ratio of the probabilities on both sides of the widest gap.
        low, high: the two probabilities.
        origin: of ``value``: in the gap, given by the user, ``fallback_of`` the alphabet, or fitted to an automaton.
    """

    value: float
    factor: float
    low: float
    high: float
    origin: Origin = "gap"

    @property
    def has_gap(self) -> bool:
        """Whether the widest gap is wide."""
        return self.factor >= MIN_FACTOR

    @property
    def separates(self) -> bool:
        """Whether ``value`` is in a wide gap, or given where there is one."""
        return self.has_gap and self.origin in ("gap", "given")


def find_threshold(observations: Sequence[Observation]) -> Threshold:
    """Return the middle of the widest gap of log p between 1e-5 and 0.2, over all symbols after all prefixes.

    Where the gap is narrower than a factor of ``MIN_FACTOR``, the threshold is ``fallback_of`` the alphabet.
    """
    logs = np.concatenate([each.log_probabilities.ravel() for each in observations])
    edges = np.sort(logs.clip(np.log(LOW), np.log(HIGH)))  # lower and higher ones are on the sides of any gap
    widths = np.diff(edges)
    widest = int(widths.argmax())
    low, high = edges[widest], edges[widest + 1]
    factor = float(np.exp(high - low))
    found = Threshold(float(np.exp((low + high) / 2)), factor, float(np.exp(low)), float(np.exp(high)))
    if found.has_gap:
        return found
    return replace(found, value=fallback_of(observations[0].log_probabilities.shape[-1]), origin="fallback")


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
