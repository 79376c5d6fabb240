"""The stack language on which the Discrete Transformer is evaluated, and the dependencies of its symbols.

After Strobelt et al. (2017). The symbols are the digits 0 to 4 and brackets. A digit may occur anywhere and is the
current nesting depth; at most four brackets are open. Not specified in the papers: each symbol is uniform over the
allowed ones, and a string may end at any depth.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.support.progress import Advance, show_nothing
from structattn.tasks.formal_languages.length_table import FloatArray, IndexArray
from structattn.tasks.formal_languages.strings import require_symbols

MAX_DEPTH = 4
OPEN, CLOSE = MAX_DEPTH + 1, MAX_DEPTH + 2  # digits are their own indices


class StackLanguage:
    """The stack language, with strings of every length.

    P(length) is defined as 1 for each length, so only conditional probabilities are meaningful.
    """

    name = "stack-language"
    variant = "faithful"  # the only one

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The digits and the brackets."""
        return (*map(str, range(MAX_DEPTH + 1)), "(", ")")

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return all lengths from ``low`` to ``high`` inclusive.

        Raises:
            ValueError: not 0 <= low <= high.
        """
        if not 0 <= low <= high:
            raise ValueError(f"lengths {low} to {high}; expected 0 <= low <= high")
        return list(range(low, high + 1))

    def log_length_probability(self, length: int) -> float:
        """Return 0: there are strings of every length.

        Raises:
            ValueError: ``length`` is negative.
        """
        if length < 0:
            raise ValueError(f"length is {length}; expected at least 0")
        return 0.0

    def sample_each(self, lengths: ArrayLike, generator: Generator) -> list[IndexArray]:
        """Sample one string of each length, (N,), from P(string | length)."""
        sizes = np.asarray(lengths, dtype=np.int64)
        depth, symbols = np.zeros_like(sizes), np.empty((sizes.size, int(sizes.max(initial=0))), dtype=np.int64)
        for t in range(symbols.shape[1]):
            symbols[:, t] = _draw(depth, generator)
            depth += _step(symbols[:, t])
        return [string[:size].copy() for string, size in zip(symbols, sizes, strict=True)]

    def log_probabilities(self, strings: Sequence[NDArray[np.integer]], advance: Advance = show_nothing) -> FloatArray:
        """Return log P(string | length), (N,) in nats; -inf outside the language.

        Raises:
            ValueError: an index is outside the alphabet.
        """
        require_symbols(strings, len(self.alphabet))
        log_probs = np.array(
            [_log_probability(np.asarray(string, dtype=np.int64)) for string in strings], dtype=np.float64
        )
        advance(len(strings))
        return log_probs


def _step(symbols: IndexArray) -> IndexArray:
    """Return the change of depth by each symbol."""
    change: IndexArray = (symbols == OPEN).astype(np.int64) - (symbols == CLOSE)
    return change


def _choices(depth: IndexArray) -> IndexArray:
    """Return the number of symbols allowed at each depth: the digit, and one bracket or both."""
    choices: IndexArray = 1 + (depth < MAX_DEPTH) + (depth > 0).astype(np.int64)
    return choices


def _draw(depth: IndexArray, generator: Generator) -> IndexArray:
    pick = generator.integers(0, _choices(depth))
    brackets = np.where((pick == 1) & (depth < MAX_DEPTH), OPEN, CLOSE)
    symbols: IndexArray = np.where(pick == 0, depth, brackets)
    return symbols


def _log_probability(string: IndexArray) -> float:
    depth = np.concatenate([[0], np.cumsum(_step(string))])
    before = depth[:-1]
    digits = string <= MAX_DEPTH
    legal = (depth >= 0).all() and (depth <= MAX_DEPTH).all() and (string[digits] == before[digits]).all()
    return float(-np.log(_choices(before)).sum()) if legal else -math.inf


def dependencies(string: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return the positions that determine what may follow each prefix, (T, T); row t is for the prefix that ends at t.

    They are the span from the last digit to t inclusive: the digit is the depth, and the brackets after it change it.
    Before the first digit it is the whole prefix.
    """
    symbols = np.asarray(string, dtype=np.int64)
    time = np.arange(len(symbols))
    last_digit = np.maximum.accumulate(np.where(symbols <= MAX_DEPTH, time, 0))
    return (time[None, :] >= last_digit[:, None]) & (time[None, :] <= time[:, None])
