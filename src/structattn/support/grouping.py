"""Groups of values with equal keys, names that tell groups apart, and lists of names in messages."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


def grouped(values: Iterable[Value], key: Callable[[Value], Key]) -> dict[Key, list[Value]]:
    """Return key -> the values that have it, both in order of first occurrence."""
    groups: dict[Key, list[Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def numbered(names: Iterable[str]) -> list[str]:
    """Return names with numbers from the second of those that are equal: ``["a", "a (2)"]``."""
    counts = Counter[str]()
    found = []
    for name in names:
        counts[name] += 1
        found.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return found


def listed(names: Sequence[object], most: int = 5) -> str:
    """Return the first ``most`` names, separated by commas, and the number of the others: ``"a, b and 3 more"``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
