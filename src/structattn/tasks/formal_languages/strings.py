"""Strings of formal languages: arrays of indices into an alphabet."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def require_symbols(strings: Sequence[NDArray[np.integer]], alphabet_size: int) -> None:
    """Check that strings are integers (length,) from 0 to ``alphabet_size`` - 1.

    Raises:
        ValueError: one of them is not.
    """
    for index, string in enumerate(map(np.asarray, strings)):
        if string.ndim != 1 or not (string.size == 0 or np.issubdtype(string.dtype, np.integer)):
            raise ValueError(f"string {index} is {string.dtype} of shape {string.shape}; expected integers (length,)")
        outside = string[(string < 0) | (string >= alphabet_size)]
        if outside.size:
            raise ValueError(f"string {index} holds {outside[0]}; expected 0 to {alphabet_size - 1}")
