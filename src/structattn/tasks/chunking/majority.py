"""Tagging by the most frequent tag of each symbol in training data: baselines, and parts of speech of single words."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class MajorityTags:
    """Assigns to each symbol the tag that it most often has; the first in alphabetical order of equally frequent ones.

    Args:
        tag_of: symbol -> tag.
        default: the most frequent tag of all, for other symbols.
    """

    tag_of: dict[str, str]
    default: str

    @classmethod
    def fit(cls, pairs: Iterable[tuple[str, str]]) -> "MajorityTags":
        """Count the pairs (symbol, tag) of training data.

        Raises:
            ValueError: there are none.
        """
        counts: dict[str, Counter[str]] = {}
        for symbol, tag in pairs:
            counts.setdefault(symbol, Counter())[tag] += 1
        if not counts:
            raise ValueError("no tagged symbols; expected at least one")
        total = sum(counts.values(), Counter[str]())
        return cls({symbol: _most_frequent(tags) for symbol, tags in counts.items()}, _most_frequent(total))

    def __call__(self, symbols: Iterable[str]) -> list[str]:
        """Return the tag of each symbol."""
        return [self.tag_of.get(symbol, self.default) for symbol in symbols]


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
