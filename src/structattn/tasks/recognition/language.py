"""What recognition needs to know of a language."""

from collections.abc import Callable, Sequence
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
        has_length: whether members have a length.
        sample: length, generator -> a member of that length.
        next_symbols: of a member; see ``RecognitionLanguage``.
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
