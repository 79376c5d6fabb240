"""Student's t distribution, for intervals of means of few numbers."""

import math


def central_probability(t: float, freedom: int) -> float:
    """P(|T| <= t) for whole degrees of freedom: the closed forms of Abramowitz & Stegun (1964), 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2 == 1
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def half_width(count: int, probability: float = 0.95) -> float:
    """By how many standard errors the interval of the mean of ``count`` numbers reaches to either side.

    Raises:
        ValueError: fewer than two numbers have no interval.
    """
    if count < 2:
        raise ValueError(f"count is {count}; an interval needs at least 2")
    low, high = 0.0, 1.0
    while central_probability(high, count - 1) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if central_probability(middle, count - 1) < probability else (low, middle)
    return (low + high) / 2
