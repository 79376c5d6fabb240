"""What recognition needs to know of a language: functions of one string, and trivial rules."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.support.errors import UsageError

String: TypeAlias = tuple[int, ...]
"""Indices into an alphabet."""
NextSymbols: TypeAlias = list[frozenset[int]]
"""The set of symbols that may follow each prefix of a member, n + 1 sets; the size of the alphabet stands for <eos>."""
Shape: TypeAlias = Callable[[String], bool]
"""A rule that looks at the form of a string and not at its content; it accepts all members."""


class RecognitionLanguage(Protocol):
    """A language whose members can be drawn and decided."""

    @property
    def name(self) -> str:
        """The name in settings and messages."""

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols."""

    @property
    def classes(self) -> tuple[int, ...]:
        """The class of each symbol: symbols of one class stand in for each other in well-shaped negatives."""

    @property
    def has_shape(self) -> Shape | None:
        """The shape of its members; None: it has no rule of its own."""

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from ``low`` to ``high`` inclusive that members have."""

    def draw(self, count: int, high: int, generator: Generator) -> list[String]:
        """Draw members of length 0 to ``high``, by the distribution of the language over lengths and strings."""

    def sample_each(self, lengths: Sequence[int], generator: Generator) -> list[String]:
        """Draw a member of each length."""

    def sample_near(self, lengths: Sequence[int], generator: Generator) -> list[String]:
        """Draw a member of each length from which few edits lead out of the language."""

    def accepts_each(self, strings: Sequence[String]) -> list[bool]:
        """Return whether each string is a member."""

    def next_symbols(self, string: String) -> NextSymbols:
        """Return the symbols that may follow each prefix of a member; limits of lengths are ignored."""

    def log_conditionals(self, strings: Sequence[String]) -> NDArray[np.float64] | None:
        """Return log P(string | length) of members as ``sample_each`` draws them, in nats; None: not known."""


@dataclass(frozen=True)
class FlareLanguage:
    """A language of FLaRe, or one defined in the same way; see ``RecognitionLanguage``.

    Args:
        name: the name in settings and messages.
        description: one line.
        alphabet: the symbols.
        has_length: whether members have a length.
        sample: length, generator -> a member of that length.
        accepts: whether a string is a member.
        next_symbols: of a member; see ``RecognitionLanguage``.
        classes: the class of each symbol.
        has_shape: the shape of members, if there is one.
        near: length, generator -> a member near the boundary of the language; by default one of ``sample``.
        draw_one: longest length, generator -> a member; by default one of ``sample`` with a length drawn uniformly.
        log_conditional: member -> log P(member | length) of ``sample``, in nats; None: not known.
    """

    name: str
    description: str
    alphabet: tuple[str, ...]
    has_length: Callable[[int], bool]
    sample: Callable[[int, Generator], String]
    accepts: Callable[[String], bool]
    next_symbols: Callable[[String], NextSymbols]
    classes: tuple[int, ...]
    has_shape: Shape | None = None
    near: Callable[[int, Generator], String] | None = None
    draw_one: Callable[[int, Generator], String] | None = None
    log_conditional: Callable[[String], float] | None = None

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from ``low`` to ``high`` inclusive that members have."""
        return [length for length in range(low, high + 1) if self.has_length(length)]

    def draw(self, count: int, high: int, generator: Generator) -> list[String]:
        """Draw members of length 0 to ``high``.

        Raises:
            UsageError: there are none.
        """
        if self.draw_one is not None:
            return [self.draw_one(high, generator) for _ in range(count)]
        return self.sample_each(uniform_lengths(self, count, high, generator), generator)

    def sample_each(self, lengths: Sequence[int], generator: Generator) -> list[String]:
        """Draw a member of each length."""
        return [self.sample(length, generator) for length in lengths]

    def sample_near(self, lengths: Sequence[int], generator: Generator) -> list[String]:
        """Draw a member of each length from which few edits lead out of the language."""
        return [(self.near or self.sample)(length, generator) for length in lengths]

    def accepts_each(self, strings: Sequence[String]) -> list[bool]:
        """Return whether each string is a member."""
        return [self.accepts(string) for string in strings]

    def log_conditionals(self, strings: Sequence[String]) -> NDArray[np.float64] | None:
        """Return log P(string | length) of members as ``sample`` draws them, in nats; None: not known."""
        if self.log_conditional is None:
            return None
        return np.array([self.log_conditional(string) for string in strings])


def uniform_lengths(language: RecognitionLanguage, count: int, high: int, generator: Generator) -> list[int]:
    """Draw lengths uniformly from those that members have, from 0 to ``high``.

    Raises:
        UsageError: there are none.
    """
    valid = language.valid_lengths(0, high)
    if not valid:
        raise UsageError(f"{language.name}: has no strings of the lengths 0 to {high}")
    return [valid[index] for index in generator.integers(len(valid), size=count)]


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
    of neighbours, the first and the last symbol; ``shape``: the rule of the language, where it has one.
    """
    rules = {"length": lambda string: bool(language.valid_lengths(len(string), len(string)))}
    rules["neighbours"] = Neighbours.of(members)
    if language.has_shape is not None:
        rules["shape"] = language.has_shape
    return rules


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
