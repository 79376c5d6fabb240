"""The protocol of all formal languages."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.tasks.formal_languages.binary_rules import FloatArray, IndexArray


class Language(Protocol):
    """A distribution over strings with exact probabilities; a string is an array of indices into ``alphabet``."""

    @property
    def name(self) -> str:
        """The name of the language."""

    @property
    def variant(self) -> str:
        """The variant of its definition: ``faithful`` or ``reference``."""

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols."""

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from ``low`` to ``high`` inclusive that have strings."""

    def log_length_probability(self, length: int) -> float:
        """Return log P(length), in nats; -inf if no string has that length."""

    def sample_each(self, lengths: ArrayLike, generator: Generator) -> list[IndexArray]:
        """Sample one string of each length from P(string | length)."""

    def log_probabilities(
        self, strings: Sequence[NDArray[np.integer]], advance: Callable[[int], object] = lambda count: None
    ) -> FloatArray:
        """Return the log-probability of each string, (N,) in nats; -inf outside the language."""
