"""What a formal language offers, whatever it is defined by."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.data.formal_languages.binary_rules import FloatArray, IndexArray


class Language(Protocol):
    """Strings with exact probabilities; a string is an array of indices into ``alphabet``."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def reading(self) -> str:
        """Which of the readings of its definition."""

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols."""

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """The lengths in low..high, both included, of which there are strings."""

    def log_length_probability(self, length: int) -> float:
        """The logarithm of P(a string has that length); -inf where there is none."""

    def sample_each(self, lengths: ArrayLike, generator: Generator) -> list[IndexArray]:
        """Draw one string of each of the lengths from P(string | length)."""

    def log_probabilities(
        self, strings: Sequence[NDArray[np.integer]], advance: Callable[[int], object] = lambda count: None
    ) -> FloatArray:
        """The logarithm of each string's probability, (N,) nats; -inf outside the language."""
