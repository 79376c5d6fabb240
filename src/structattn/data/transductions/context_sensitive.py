"""The context-sensitive tasks of the Chomsky-hierarchy suite (Delétang et al. 2023, table 1)."""

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.data.transductions.transduction import Pairs, Strings, Transduction

BITS = ("0", "1")
LETTERS = ("a", "b")
MISSING, FILLING = 2, 3
SIGN, END = 2, 2


def duplicate_string(length: int, count: int, generator: Generator) -> Pairs:
    """Y is x twice."""
    x = generator.integers(0, 2, size=(count, length))
    return x, np.concatenate([x, x], axis=1)


def missing_duplicate(length: int, count: int, generator: Generator) -> Pairs:
    """X is a string twice with one symbol hidden; y is that symbol. An x of odd length ends in a filling "="."""
    half = generator.integers(0, 2, size=(count, length // 2))
    x = np.concatenate([half, half, np.full((count, length % 2), FILLING)], axis=1)
    place = generator.integers(0, 2 * (length // 2), size=count)
    rows = np.arange(count)
    y = x[rows, place][:, None]
    x[rows, place] = MISSING
    return x, y


def odds_first(length: int, count: int, generator: Generator) -> Pairs:
    """The symbols at odd places (counted from 1), then those at even ones."""
    x = generator.integers(0, 2, size=(count, length))
    return x, np.concatenate([x[:, ::2], x[:, 1::2]], axis=1)


def bucket_sort(length: int, count: int, generator: Generator) -> Pairs:
    """The digits 0 to 4 of x in order."""
    x = generator.integers(0, 5, size=(count, length))
    return x, np.sort(x, axis=1)


def compute_sqrt(length: int, count: int, generator: Generator) -> Pairs:
    """The whole part of the square root of a binary number, both with the highest bit first, in half as many bits."""
    x = generator.integers(0, 2, size=(count, length))
    numbers = [int("".join(map(str, row)), 2) for row in x]
    return x, _bits([math.isqrt(number) for number in numbers], (length + 1) // 2)[:, ::-1].copy()


def binary_addition(length: int, count: int, generator: Generator) -> Pairs:
    """The sum of two binary numbers, lowest bit first everywhere; y ends with an end mark and a filling of 0."""
    return _binary(length, count, generator, lambda left, right: left + right)


def binary_multiplication(length: int, count: int, generator: Generator) -> Pairs:
    """The product of two binary numbers, lowest bit first everywhere; y ends with an end mark and a filling of 0."""
    return _binary(length, count, generator, lambda left, right: left * right)


def _binary(length: int, count: int, generator: Generator, operation: Callable[[int, int], int]) -> Pairs:
    """X holds two numbers and a sign between them, whose place is uniform; y has as many symbols as x."""
    x = generator.integers(0, 2, size=(count, length))
    y = np.zeros((count, length), dtype=np.int64)
    for row, place in enumerate(generator.integers(1, length - 1, size=count)):
        x[row, place] = SIGN
        left, right = (int("".join(map(str, part[::-1])), 2) for part in (x[row, :place], x[row, place + 1 :]))
        result = operation(left, right)
        size = max(result.bit_length(), 1)
        y[row, :size] = _bits([result], size)
        y[row, size] = END
    return x, y


def _bits(numbers: list[int], size: int) -> Strings:
    """Numbers as bits, the lowest first, (N, size)."""
    return np.array([[number >> bit & 1 for bit in range(size)] for number in numbers], dtype=np.int64).reshape(
        -1, size
    )


def up_to_the_end(outputs: Strings) -> NDArray[np.bool_]:
    """What counts for accuracy: the number and its end mark, not the filling."""
    counted: NDArray[np.bool_] = np.arange(outputs.shape[1]) <= np.argmax(outputs == END, axis=1)[:, None]
    return counted


_SENSITIVE = "context-sensitive"
CONTEXT_SENSITIVE = (
    Transduction("duplicate-string", "a string twice", LETTERS, LETTERS, duplicate_string, _SENSITIVE),
    Transduction(
        "missing-duplicate",
        "the symbol that is hidden in a string written twice",
        (*LETTERS, "?", "="),
        LETTERS,
        missing_duplicate,
        _SENSITIVE,
        shortest=2,
    ),
    Transduction("odds-first", "the symbols at odd places, then the others", LETTERS, LETTERS, odds_first, _SENSITIVE),
    Transduction(
        "binary-addition",
        "the sum of two binary numbers",
        (*BITS, "+"),
        (*BITS, "END"),
        binary_addition,
        _SENSITIVE,
        shortest=3,
        counted=up_to_the_end,
    ),
    Transduction(
        "binary-multiplication",
        "the product of two binary numbers",
        (*BITS, "*"),
        (*BITS, "END"),
        binary_multiplication,
        _SENSITIVE,
        shortest=3,
        counted=up_to_the_end,
    ),
    Transduction("compute-sqrt", "the whole part of a square root", BITS, BITS, compute_sqrt, _SENSITIVE),
    Transduction(
        "bucket-sort",
        "the digits 0 to 4 in order",
        ("0", "1", "2", "3", "4"),
        ("0", "1", "2", "3", "4"),
        bucket_sort,
        _SENSITIVE,
    ),
)
