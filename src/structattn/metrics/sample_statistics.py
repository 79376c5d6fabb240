"""Mean, standard deviation and confidence interval of a few numbers."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from structattn.metrics.t_distribution import critical_value


@dataclass(frozen=True)
class SampleStatistics:
    """Statistics of a sample.

    Args:
        count: the number of trials.
        mean: the mean.
        deviation: the sample standard deviation (n - 1); None for one number.
        interval: half the width of the 95 % confidence interval of the mean (Student's t); None for one number.
        min: the minimum.
        max: the maximum.
        numbers: the sample.
    """

    count: int
    mean: float
    deviation: float | None
    interval: float | None
    min: float
    max: float
    numbers: tuple[float, ...]


def sample_statistics(numbers: Sequence[float]) -> SampleStatistics:
    """Return the statistics of one or more numbers."""
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    interval = None if deviation is None else critical_value(len(numbers)) * deviation / math.sqrt(len(numbers))
    return SampleStatistics(
        len(numbers), statistics.fmean(numbers), deviation, interval, min(numbers), max(numbers), tuple(numbers)
    )
