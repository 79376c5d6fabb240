"""Counts the words of a text in bounded memory."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

MOST_UNITS: Final = 4_000_000


class UnitCounts:
    """How often each unit of a text occurs.

    When more than ``most`` different ones have come, those seen least often are forgotten until half are left (Manku &
    Motwani 2002 bound what that can miss), so memory does not grow with the text. Their characters are remembered.

    Args:
        cut: a line to its units.
        most: how many different units are held.
    """

    def __init__(self, cut: Callable[[str], list[str]], most: int = MOST_UNITS) -> None:
        self._cut, self._most = cut, most
        self.counts: Counter[str] = Counter()
        self.forgotten = 0

    def add(self, line: str) -> None:
        """Count one line more."""
        self.counts.update(self._cut(line))
        if len(self.counts) > self._most:
            self._forget()

    def _forget(self) -> None:
        ranked = sorted(self.counts, key=lambda unit: (-self.counts[unit], unit))
        rare = [unit for unit in ranked[self._most // 2 :] if len(unit) > 1]
        for unit in rare:
            del self.counts[unit]
        for character in _characters(rare):
            self.counts.setdefault(character, 0)
        self.forgotten += len(rare)


def _characters(units: Iterable[str]) -> set[str]:
    return {character for unit in units for character in unit}
