"""Differences between models, each trained with several seeds."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from structattn.metrics.statistics import critical_value, sample_statistics

Seed = TypeVar("Seed", bound=Hashable)


@dataclass(frozen=True)
class DifferenceOverSeeds:
    """The difference of the mean scores of two groups of runs, with a confidence interval over seeds.

    Args:
        mean: the mean of the second group minus that of the first; where seeds are shared, over these.
        interval: half the width of its 95 % confidence interval; None with fewer than two runs of either.
        pairs: the number of seeds that both have, at least two, in which the runs are compared in pairs (Student's t);
            0: they are compared as independent samples (Welch 1947).
    """

    mean: float
    interval: float | None
    pairs: int


def difference_over_seeds(first: Mapping[Seed, float], second: Mapping[Seed, float]) -> DifferenceOverSeeds:
    """Compare two groups of runs.

    Args:
        first: seed -> score, at least one.
        second: seed -> score, at least one. What is computed from a shared seed, as data and the order of examples, is
            expected to be equal in both.
    """
    shared = [seed for seed in first if seed in second]
    if len(shared) > 1:
        found = sample_statistics([second[seed] - first[seed] for seed in shared])
        return DifferenceOverSeeds(found.mean, found.interval, len(shared))
    one, other = sample_statistics([*first.values()]), sample_statistics([*second.values()])
    mean = other.mean - one.mean
    if one.deviation is None or other.deviation is None:
        return DifferenceOverSeeds(mean, None, 0)
    variances = one.deviation**2 / one.count, other.deviation**2 / other.count
    if not sum(variances):
        return DifferenceOverSeeds(mean, 0.0, 0)
    squares = variances[0] ** 2 / (one.count - 1) + variances[1] ** 2 / (other.count - 1)
    # At least the smaller count minus 1; rounded to the safe side, but for errors of this precision.
    freedom = math.floor(sum(variances) ** 2 / squares + 1e-9)
    return DifferenceOverSeeds(mean, critical_value(freedom + 1) * math.sqrt(sum(variances)), 0)
