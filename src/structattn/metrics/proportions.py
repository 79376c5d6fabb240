"""How often something was right, and how sure that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NORMAL_QUANTILE = 1.959963984540054  # 97.5 %


@dataclass(frozen=True)
class Proportion:
    """A part of a number of independent trials.

    Args:
        trials: how many there were.
        right: how many of them were right.
        value: right / trials.
        least: where the 95 % interval of Wilson (1927) begins, which is of all p with
            |value - p| ≤ 1.96 √(p (1 - p) / trials).
        most: where it ends.
    """

    trials: int
    right: int
    value: float
    least: float
    most: float


def proportion(outcomes: Sequence[bool]) -> Proportion:
    """The part of the outcomes that is right.

    Raises:
        ValueError: there are none.
    """
    trials, right = len(outcomes), sum(map(bool, outcomes))
    if not trials:
        raise ValueError("a proportion of nothing; expected outcomes")
    value, square = right / trials, _NORMAL_QUANTILE**2 / trials
    centre = (value + square / 2) / (1 + square)
    half = math.sqrt(square * value * (1 - value) + square**2 / 4) / (1 + square)
    return Proportion(trials, right, value, max(0.0, centre - half), min(1.0, centre + half))
