"""The stack language on which the Discrete Transformer is tried, and what each of its symbols depends on.

After Strobelt et al. (2017). Symbols are the digits 0 to 4 and brackets. A digit may come at any time and tells the
nesting level; at most four brackets are open. What the papers leave open: each symbol is uniform over those that are
allowed, and a string may end at any level.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.data.formal_languages.binary_rules import FloatArray, IndexArray

MAX_DEPTH = 4
OPEN, CLOSE = MAX_DEPTH + 1, MAX_DEPTH + 2  # digits are their own indices


class StackLanguage:
    """Strings of every length; P(length) is 1 for each: only conditional probabilities mean anything.

    Args:
        reading: there is one reading only.
    """

    name = "stack-language"

    def __init__(self, reading: str = "faithful") -> None:
        self.reading = reading

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The digits and the brackets."""
        return (*map(str, range(MAX_DEPTH + 1)), "(", ")")

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """All lengths in low..high, both included.

        Raises:
            ValueError: not 0 <= low <= high.
        """
        if not 0 <= low <= high:
            raise ValueError(f"lengths {low} to {high}; expected 0 <= low <= high")
        return list(range(low, high + 1))

    def log_length_probability(self, length: int) -> float:
        """0: there are strings of every length.

        Raises:
            ValueError: ``length`` is negative.
        """
        if length < 0:
            raise ValueError(f"length is {length}; expected at least 0")
        return 0.0

    def sample_each(self, lengths: ArrayLike, generator: Generator) -> list[IndexArray]:
        """Draw one string of each of the lengths, (N,)."""
        sizes = np.asarray(lengths, dtype=np.int64)
        level, symbols = np.zeros_like(sizes), np.empty((sizes.size, int(sizes.max(initial=0))), dtype=np.int64)
        for t in range(symbols.shape[1]):
            symbols[:, t] = _drawn(level, generator)
            level += _step(symbols[:, t])
        return [string[:size].copy() for string, size in zip(symbols, sizes, strict=True)]

    def log_probabilities(
        self, strings: Sequence[NDArray[np.integer]], advance: Callable[[int], object] = lambda count: None
    ) -> FloatArray:
        """The logarithm of P(string | its length), (N,) nats; -inf outside the language."""
        found = np.array([_log_probability(np.asarray(string, dtype=np.int64)) for string in strings], dtype=np.float64)
        advance(len(strings))
        return found


def _step(symbols: IndexArray) -> IndexArray:
    """By how much each symbol changes the level."""
    change: IndexArray = (symbols == OPEN).astype(np.int64) - (symbols == CLOSE)
    return change


def _choices(level: IndexArray) -> IndexArray:
    """How many symbols are allowed at each level: the digit, and one bracket or both."""
    choices: IndexArray = 1 + (level < MAX_DEPTH) + (level > 0).astype(np.int64)
    return choices


def _drawn(level: IndexArray, generator: Generator) -> IndexArray:
    pick = generator.integers(0, _choices(level))
    brackets = np.where((pick == 1) & (level < MAX_DEPTH), OPEN, CLOSE)
    symbols: IndexArray = np.where(pick == 0, level, brackets)
    return symbols


def _log_probability(string: IndexArray) -> float:
    level = np.concatenate([[0], np.cumsum(_step(string))])
    before = level[:-1]
    digits = string <= MAX_DEPTH
    legal = (level >= 0).all() and (level <= MAX_DEPTH).all() and (string[digits] == before[digits]).all()
    return float(-np.log(_choices(before)).sum()) if legal else -math.inf


def dependencies(string: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which positions are needed to know what may follow each prefix, (T, T): row t, the prefix that ends at t.

    The span from the last digit to t, both included: the digit tells the level, the brackets after it change it. Where
    no digit has come yet it is the whole prefix.
    """
    symbols = np.asarray(string, dtype=np.int64)
    time = np.arange(len(symbols))
    last_digit = np.maximum.accumulate(np.where(symbols <= MAX_DEPTH, time, 0))
    return (time[None, :] >= last_digit[:, None]) & (time[None, :] <= time[:, None])
