"""What a transduction task is: strings that are to be turned into others, made on the fly."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Strings = NDArray[np.int64]  # (N, length), indices into an alphabet
Pairs = tuple[Strings, Strings]


def _all_count(outputs: Strings) -> NDArray[np.bool_]:
    return np.ones(outputs.shape, dtype=np.bool_)


@dataclass(frozen=True)
class Transduction:
    """Strings x and, for each, the string y that is asked for; all x of one length have y of one length.

    Args:
        name: as settings have it.
        description: one line.
        inputs: the alphabet of x.
        outputs: the alphabet of y.
        draw: from (length of x, how many, generator) to x (N, length) and y (N, length of y), indices into the two.
        shortest: the least length of x that there is.
        has_length: whether there are x of a length, where not all from ``shortest`` on exist.
        counted: from y to the positions that count for accuracy; all, unless y is followed by filling.
        level: its class: "regular", "deterministic context-free", "context-sensitive", or what a language is posed as.
    """

    name: str
    description: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    draw: Callable[[int, int, Generator], Pairs]
    level: str
    shortest: int = 1
    counted: Callable[[Strings], NDArray[np.bool_]] = _all_count
    has_length: Callable[[int], bool] = lambda length: True

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """The lengths of x in low..high, both included, that there are."""
        return [length for length in range(max(low, self.shortest), high + 1) if self.has_length(length)]

    def sample(self, length: int, count: int, generator: Generator) -> Pairs:
        """Draw ``count`` pairs whose x have a length.

        Raises:
            ValueError: there is no x of that length, or ``count`` is negative.
        """
        if not self.valid_lengths(length, length) or count < 0:
            raise ValueError(f"{self.name}: {count} strings of length {length}; expected one that there is")
        return self.draw(length, count, generator)
