"""Confidence intervals of means and proportions, and the lower bound of a cross-entropy."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def central_probability(t: float, degrees_of_freedom: int) -> float:
    """Return P(|T| <= t), by the closed forms of Abramowitz & Stegun (1964), 26.7.3 and 26.7.4.

    Args:
        t: the bound, at least 0.
        degrees_of_freedom: a whole number, at least 1.
    """
    angle = math.atan(t / math.sqrt(degrees_of_freedom))
    cosine = math.cos(angle)
    odd = degrees_of_freedom % 2 == 1
    term = cosine if odd else 1.0
    total = term if degrees_of_freedom > 1 else 0.0
    for k in range(3 if odd else 2, degrees_of_freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def critical_value(count: int, probability: float = 0.95) -> float:
    """Return the t with P(|T| <= t) = probability for the mean of ``count`` numbers.

    The confidence interval of the mean extends this many standard errors to either side.

    Args:
        count: the number of values, at least 2; the degrees of freedom are one less.
        probability: the confidence level, between 0 and 1.

    Raises:
        ValueError: ``count`` is below 2, or ``probability`` not between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}; expected more than 0 and less than 1")
    if count < 2:
        raise ValueError(f"count is {count}; a confidence interval needs at least 2 values")
    low, high = 0.0, 1.0
    while central_probability(high, count - 1) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if central_probability(middle, count - 1) < probability else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class SampleStatistics:
    """Statistics of a sample.

    ``deviation`` is that of the sample (n - 1), ``interval`` half the width of the mean's 95 % interval (Student's t);
    both are None for one number.
    """

    count: int
    mean: float
    deviation: float | None
    interval: float | None
    min: float
    max: float
    numbers: tuple[float, ...]


def sample_statistics(numbers: Sequence[float]) -> SampleStatistics:
    """Return the statistics of one or more numbers.

    Raises:
        ValueError: there are no numbers, or one is NaN or infinite.
    """
    for place, number in enumerate(numbers):
        if not math.isfinite(number):
            raise ValueError(f"number {place} is {number}; expected finite numbers")
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    interval = None if deviation is None else critical_value(len(numbers)) * deviation / math.sqrt(len(numbers))
    return SampleStatistics(
        len(numbers), statistics.fmean(numbers), deviation, interval, min(numbers), max(numbers), tuple(numbers)
    )


_NORMAL_QUANTILE = 1.959963984540054  # 97.5 %


@dataclass(frozen=True)
class Proportion:
    """The proportion of successes in independent trials, with its 95 % Wilson interval."""

    trials: int
    successes: int
    value: float
    lower: float
    upper: float


def wilson_interval(outcomes: Sequence[bool]) -> Proportion:
    """Compute the proportion of successes and its 95 % interval.

    The interval of Wilson (1927) holds all p with |value - p| ≤ 1.96 √(p (1 - p) / trials).

    Raises:
        ValueError: there are no outcomes.
    """
    trials, successes = len(outcomes), sum(map(bool, outcomes))
    if not trials:
        raise ValueError("no outcomes; expected at least one")
    value, square = successes / trials, _NORMAL_QUANTILE**2 / trials
    centre = (value + square / 2) / (1 + square)
    half = math.sqrt(square * value * (1 - value) + square**2 / 4) / (1 + square)
    upper = 1.0 if successes == trials else centre + half  # of rounded numbers the sum may be below 1
    return Proportion(trials, successes, value, max(0.0, centre - half), upper)


def lower_bound(
    log_conditionals: NDArray[np.float64] | Sequence[float],
    lengths: NDArray[np.int64] | Sequence[int],
    num_lengths: int,
) -> float:
    """Return the cross-entropy of the true distribution, whose length is uniform over L lengths, on N strings.

    LB = [sum over w of -log p(w | |w|) + N log L] / sum over w of (|w| + 1), in nats per symbol including the end of
    the string (DuSell & Chiang 2020, section 5; 2024, section 6).

    Args:
        log_conditionals: (N,), log p_G(w) - log p_G(|w|).
        lengths: (N,), |w|, not including the end of the string.
        num_lengths: L; 1 if the length is given.

    Raises:
        ValueError: there are no strings, the shapes differ, a probability is above 1 or NaN, a length is
            negative, or L is below 1.
    """
    conditionals, sizes = np.asarray(log_conditionals, dtype=np.float64), np.asarray(lengths)
    if conditionals.shape != sizes.shape or conditionals.ndim != 1 or not conditionals.size:
        raise ValueError(f"{conditionals.shape} log-probabilities, {sizes.shape} lengths; expected equal (N,), N >= 1")
    if (sizes < 0).any():
        negative = int(np.flatnonzero(sizes < 0)[0])
        raise ValueError(f"length {negative} is {sizes[negative]}; expected at least 0")
    if num_lengths < 1:
        raise ValueError(f"num_lengths is {num_lengths}; expected at least 1")
    if not (conditionals <= 1e-9).all():  # rounding may lift the only string of a length above probability 1
        wrong = int(np.flatnonzero(~(conditionals <= 1e-9))[0])
        raise ValueError(f"log-probability {wrong} is {conditionals[wrong]}; expected at most 0")
    total = -conditionals.sum() + conditionals.size * math.log(num_lengths)
    return float(total / (sizes + 1).sum())
