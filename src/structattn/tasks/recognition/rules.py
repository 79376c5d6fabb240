"""Trivial rules, whose accuracy stands beside every result."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from structattn.tasks.recognition.counts import Counts
from structattn.tasks.recognition.language import RecognitionLanguage, Shape, String


@dataclass(frozen=True)
class Neighbours:
    """The strictly 2-local language of some strings: their pairs of neighbours, first and last symbols.

    Args:
        pairs: of neighbours; -1 stands before the first symbol and after the last one.
    """

    pairs: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, strings: Sequence[String]) -> "Neighbours":
        """Collect the pairs of strings."""
        return cls(frozenset(pair for string in strings for pair in _pairs(string)))

    def __call__(self, string: String) -> bool:
        """Return whether a string has no other pairs."""
        return self.pairs.issuperset(_pairs(string))


def _pairs(string: String) -> Iterator[tuple[int, int]]:
    return zip((-1, *string), (*string, -1), strict=True)


def trivial_rules(language: RecognitionLanguage, members: Sequence[String]) -> dict[str, Shape]:
    """Return the rules of a language, which accept all its members.

    ``length``: members have this length; ``neighbours``: some of ``members``, those of the training set, have each pair
    of neighbours, the first and the last symbol; ``counts``: the numbers of symbols satisfy the linear equations of
    ``members``; ``shape``: the rule of the language, where it has one.
    """
    rules: dict[str, Shape] = {"length": lambda string: bool(language.valid_lengths(len(string), len(string)))}
    rules["neighbours"] = Neighbours.of(members)
    rules["counts"] = Counts(members, len(language.alphabet))
    if language.has_shape is not None:
        rules["shape"] = language.has_shape
    return rules


def all_of(rules: Sequence[Shape]) -> Shape:
    """Return the rule that accepts what all the rules accept."""
    return lambda string: all(rule(string) for rule in rules)


def answers_of_rules(
    rules: Mapping[str, Shape], strings: Sequence[String], labels: Sequence[bool]
) -> dict[str, list[bool]]:
    """Return whether each rule is right on each string; ``majority class`` gives the more frequent label."""
    most = 2 * sum(labels) >= len(labels)
    right = {"majority class": [label == most for label in labels]}
    return right | {
        name: [rule(string) == label for string, label in zip(strings, labels, strict=True)]
        for name, rule in rules.items()
    }
