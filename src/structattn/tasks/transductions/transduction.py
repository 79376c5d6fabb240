"""Transductions: tasks that map strings to strings, sampled on the fly."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.support.errors import UsageError, quoted
from structattn.support.imports import lazy_function
from structattn.support.plugins import Plugin, require_arguments
from structattn.support.seeds import numpy_generator

Strings = NDArray[np.int64]  # (N, length), indices into an alphabet
Pairs = tuple[Strings, Strings]
END_MARK = PADDING = 2  # the output symbol after two letters or bits
_add = lazy_function("structattn.tasks.transductions.registry", "add_transduction")


def up_to_end_mark(outputs: Strings) -> NDArray[np.bool_]:
    """Return the positions up to the first end mark, the symbol of index 2, inclusive; the rest is padding."""
    counted: NDArray[np.bool_] = np.arange(outputs.shape[1]) <= np.argmax(outputs == END_MARK, axis=1)[:, None]
    return counted


def before_padding(outputs: Strings) -> NDArray[np.bool_]:
    """Return the positions before the padding, which has index 2."""
    counted: NDArray[np.bool_] = outputs != PADDING
    return counted


@dataclass(frozen=True)
class Transduction:
    """A task that maps an input string x to an output string y, whose length depends on the length of x only.

    Args:
        name: the name in settings.
        description: one line.
        inputs: the alphabet of x.
        outputs: the alphabet of y.
        draw: maps (length of x, count N, generator) to indices x (N, length) and y (N, length of y); y has at least one
            symbol.
        level: the class of the task: "regular", "deterministic context-free", "context-sensitive", "recognition" or
            "completion".
        min_length: the minimum length of x.
        counted: maps y to the positions that count for accuracy; all by default, otherwise those before padding.
        has_length: whether there are x of a length, if not all from ``min_length`` on are possible.
    """

    name: str
    description: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    draw: Callable[[int, int, Generator], Pairs]
    level: str
    min_length: int = 1
    counted: Callable[[Strings], NDArray[np.bool_]] = lambda outputs: np.ones(outputs.shape, dtype=np.bool_)
    has_length: Callable[[int], bool] = lambda length: True

    def register(self, plugin: Plugin) -> None:
        """Add this to the transductions.

        Raises:
            UsageError: the name is taken, or ``draw`` takes other arguments.
        """
        require_arguments(f"transduction {self.name!r}: draw", self.draw, "length", "count", "generator")
        _add(self, plugin)

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return the possible lengths of x from ``low`` to ``high`` inclusive."""
        return [length for length in range(max(low, self.min_length), high + 1) if self.has_length(length)]

    def sample(self, length: int, count: int, generator: Generator) -> Pairs:
        """Sample ``count`` pairs whose x have that length.

        Raises:
            ValueError: no x has that length, or ``count`` is negative.
            UsageError: ``draw`` returns something else, or y of a length that depends on more than that of x.
        """
        x, y = self._drawn(length, count, generator)
        expected = self.output_length(length)
        if y.shape[1] != expected:
            raise UsageError(
                f"transduction {self.name!r}: draw({length}, {count}, generator): y has length {y.shape[1]}, and in "
                f"another draw {expected}; expected a length that depends on that of x alone, as of padded y with the "
                "positions before the padding as counted"
            )
        return x, y

    def _drawn(self, length: int, count: int, generator: Generator) -> Pairs:
        if not self.valid_lengths(length, length) or count < 0:
            raise ValueError(
                f"{self.name}: {count} strings of length {length}; expected a possible length and a count of at least 0"
            )
        drawn = self.draw(length, count, generator)
        where = f"transduction {self.name!r}: draw({length}, {count}, generator)"
        if not (isinstance(drawn, tuple) and len(drawn) == 2):
            raise UsageError(f"{where} returns {type(drawn).__name__}; expected a tuple of x and y")
        x, y = drawn
        _require_indices(f"{where}: x", x, (count, length), len(self.inputs))
        _require_indices(f"{where}: y", y, (count, None), len(self.outputs))
        if not y.shape[1]:
            raise UsageError(f"{where}: y has length 0; expected at least one symbol, or a greater min_length")
        return x, y

    def output_length(self, length: int) -> int:
        """Return the length of y for x of a length.

        Raises:
            ValueError: no x has that length.
            UsageError: ``draw`` returns something else.
        """
        return _output_length(self, length)


@cache
def _output_length(task: Transduction, length: int) -> int:
    _, y = task._drawn(length, 1, numpy_generator(0, "output length"))
    return int(y.shape[1])


def _require_indices(name: str, strings: object, shape: tuple[int, int | None], size: int) -> None:
    """Raise UsageError unless ``strings`` are indices into an alphabet of some size; a length of None is any."""
    expected = f"integers from 0 to {size - 1} of shape ({shape[0]}, {'n' if shape[1] is None else shape[1]})"
    if not isinstance(strings, np.ndarray) or strings.ndim != 2:
        raise UsageError(f"{name} is {quoted(strings)}; expected {expected}")
    if len(strings) != shape[0] or shape[1] not in (None, strings.shape[1]):
        raise UsageError(f"{name} has shape {strings.shape}; expected {expected}")
    if strings.dtype.kind not in "iu":
        raise UsageError(f"{name} has dtype {strings.dtype}; expected {expected}")
    if strings.size and not 0 <= strings.min() <= strings.max() < size:
        raise UsageError(f"{name} has integers from {strings.min()} to {strings.max()}; expected {expected}")
