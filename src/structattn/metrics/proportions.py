"""Proportions of successes with Wilson confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NORMAL_QUANTILE = 1.959963984540054  # 97.5 %


@dataclass(frozen=True)
class Proportion:
    """The proportion of successes in independent trials, with its 95 % Wilson interval.

    Args:
        trials: the number of trials.
        successes: the number of successes.
        value: successes / trials.
        lower: the lower end of the interval.
        upper: its upper end.
    """

    trials: int
    successes: int
    value: float
    lower: float
    upper: float


def wilson_interval(outcomes: Sequence[bool]) -> Proportion:
    """Compute the proportion of successes and its 95 % interval.

    The interval of Wilson (1927) holds all p with |value - p| ≤ 1.96 √(p (1 - p) / trials).

    Args:
        outcomes: whether each trial was a success.

    Raises:
        ValueError: there are no outcomes.
    """
    trials, successes = len(outcomes), sum(map(bool, outcomes))
    if not trials:
        raise ValueError("no outcomes; expected at least one")
    value, square = successes / trials, _NORMAL_QUANTILE**2 / trials
    centre = (value + square / 2) / (1 + square)
    half = math.sqrt(square * value * (1 - value) + square**2 / 4) / (1 + square)
    return Proportion(trials, successes, value, max(0.0, centre - half), min(1.0, centre + half))
