"""Counting the words of a text in bounded memory."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

DEFAULT_CAPACITY: Final = 4_000_000


class BoundedCounts:
    """Counts of the pre-tokens of a text, approximate beyond a capacity.

    When more than ``capacity`` distinct pre-tokens are held, the rarest are evicted until half of the capacity is left
    (see Manku & Motwani 2002 for the error), so memory does not grow with the text. Their characters are kept.

    Args:
        pretokenize: splits a line into pre-tokens.
        capacity: the maximum number of distinct pre-tokens.
    """

    def __init__(self, pretokenize: Callable[[str], list[str]], capacity: int = DEFAULT_CAPACITY) -> None:
        self._pretokenize, self._capacity = pretokenize, capacity
        self.counts: Counter[str] = Counter()
        self.num_evicted = 0

    def add(self, line: str) -> None:
        """Count the pre-tokens of a line."""
        self.counts.update(self._pretokenize(line))
        if len(self.counts) > self._capacity:
            self._evict()

    def _evict(self) -> None:
        ranked = sorted(self.counts, key=lambda pretoken: (-self.counts[pretoken], pretoken))
        rare = [pretoken for pretoken in ranked[self._capacity // 2 :] if len(pretoken) > 1]
        for pretoken in rare:
            del self.counts[pretoken]
        for character in _characters(rare):
            self.counts.setdefault(character, 0)
        self.num_evicted += len(rare)


def _characters(pretokens: Iterable[str]) -> set[str]:
    return {character for pretoken in pretokens for character in pretoken}
