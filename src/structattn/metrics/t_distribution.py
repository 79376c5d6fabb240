"""Student's t distribution, for confidence intervals of means of few numbers."""

import math


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
        probability: the confidence level, below 1.

    Raises:
        ValueError: ``count`` is below 2.
    """
    if count < 2:
        raise ValueError(f"count is {count}; a confidence interval needs at least 2 values")
    low, high = 0.0, 1.0
    while central_probability(high, count - 1) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if central_probability(middle, count - 1) < probability else (low, middle)
    return (low + high) / 2
