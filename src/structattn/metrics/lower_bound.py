"""The lowest cross-entropy that a model can reach on strings with known probabilities."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


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
        ValueError: there are no strings, the shapes differ, a probability is above 1 or NaN, or L is below 1.
    """
    conditionals, sizes = np.asarray(log_conditionals, dtype=np.float64), np.asarray(lengths)
    if conditionals.shape != sizes.shape or conditionals.ndim != 1 or not conditionals.size:
        raise ValueError(f"{conditionals.shape} log-probabilities, {sizes.shape} lengths; expected equal (N,), N >= 1")
    if num_lengths < 1:
        raise ValueError(f"num_lengths is {num_lengths}; expected at least 1")
    if not (conditionals <= 1e-9).all():  # rounding may lift the only string of a length above probability 1
        wrong = int(np.flatnonzero(~(conditionals <= 1e-9))[0])
        raise ValueError(f"log-probability {wrong} is {conditionals[wrong]}; expected at most 0")
    total = -conditionals.sum() + conditionals.size * math.log(num_lengths)
    return float(total / (sizes + 1).sum())
