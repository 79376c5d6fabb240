"""The least cross-entropy that a model can reach on strings whose exact probabilities are known."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def lower_bound(
    log_conditionals: NDArray[np.float64] | Sequence[float],
    lengths: NDArray[np.int64] | Sequence[int],
    number_of_lengths: int,
) -> float:
    """LB = [sum over w of -log p(w | |w|) + N log L] / sum over w of (|w| + 1), in nats per symbol, the end counted.

    The cross-entropy of the true distribution, whose length is uniform over L lengths, on N given strings
    (DuSell & Chiang 2020, section 5; 2024, section 6).

    Args:
        log_conditionals: (N,), log p_G(w) - log p_G(|w|).
        lengths: (N,), |w|, the end of the string not counted.
        number_of_lengths: L; 1 where the length is taken as known.

    Raises:
        ValueError: no strings, unequal numbers, a probability over 1 or not a number, or fewer than one length.
    """
    conditionals, sizes = np.asarray(log_conditionals, dtype=np.float64), np.asarray(lengths)
    if conditionals.shape != sizes.shape or conditionals.ndim != 1 or not conditionals.size:
        raise ValueError(f"{conditionals.shape} log-probabilities, {sizes.shape} lengths; expected equal (N,), N >= 1")
    if number_of_lengths < 1:
        raise ValueError(f"number_of_lengths is {number_of_lengths}; expected at least 1")
    if not (conditionals <= 1e-9).all():  # rounding may lift the only string of a length above probability 1
        wrong = int(np.flatnonzero(~(conditionals <= 1e-9))[0])
        raise ValueError(f"log-probability {wrong} is {conditionals[wrong]}; expected none above 0")
    total = -conditionals.sum() + conditionals.size * math.log(number_of_lengths)
    return float(total / (sizes + 1).sum())
