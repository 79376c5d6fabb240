"""Counting the symbols of a text, in bounded memory if wanted."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

DEFAULT_CAPACITY: Final = 4_000_000


class SymbolCounts:
    """Counts of the symbols of a text, approximate beyond a capacity.

    When more than ``capacity`` distinct symbols are held after an addition, the rarest are evicted until half of the
    capacity is left (see Manku & Motwani 2002 for the error), so memory does not grow with the text. Their characters
    are kept, with a count of 0 if they are not counted themselves.

    Args:
        capacity: the maximum number of distinct symbols; None for exact counts.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._index_of: dict[str, int] = {}
        self._counts: Int64[np.ndarray, " symbols"] = np.zeros(0, np.int64)
        self.num_evicted = 0
        self.clear()

    def add(self, symbols: Sequence[str], counts: NDArray[np.integer]) -> None:
        """Add the counts of distinct symbols."""
        indices = np.fromiter(map(self._index_of.__getitem__, symbols), np.int64, len(symbols))
        missing = len(self._index_of) - len(self._counts)
        if missing > 0:  # space for as many again, so that adding takes linear time
            self._counts = np.concatenate((self._counts, np.zeros(missing + len(self._index_of), np.int64)))
        self._counts[indices] += counts
        if self._capacity is not None and len(self._index_of) > self._capacity:
            self._evict(self._capacity // 2)

    def symbols(self) -> Iterable[str]:
        """Return the distinct symbols in the order in which they were added."""
        return self._index_of.keys()

    def as_dict(self) -> dict[str, int]:
        """Return the count of each symbol."""
        return dict(zip(self._index_of, self._counts.tolist(), strict=False))

    def pop(self) -> dict[str, int]:
        """Return the count of each symbol and forget everything."""
        found = self.as_dict()
        self.clear()
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._start({}, np.zeros(0, np.int64))

    def _start(self, index_of: dict[str, int], counts: Int64[np.ndarray, " symbols"]) -> None:
        numbers = count(len(index_of))
        self._index_of = defaultdict(numbers.__next__, index_of)  # a new symbol gets the next index
        self._counts = counts

    def _evict(self, num_kept: int) -> None:
        found = self.as_dict()
        ranked = sorted(found, key=lambda symbol: (-found[symbol], symbol))
        rare = [symbol for symbol in ranked[num_kept:] if len(symbol) > 1]
        self.num_evicted += len(rare)
        for symbol in rare:
            del found[symbol]
        for character in {character for symbol in rare for character in symbol}:
            found.setdefault(character, 0)
        self._start({symbol: index for index, symbol in enumerate(found)}, np.array(list(found.values()), np.int64))
