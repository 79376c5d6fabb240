"""The context-sensitive tasks of the Chomsky-hierarchy suite (Delétang et al. 2023, table 1)."""

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from structattn.tasks.transductions.transduction import END_MARK, Pairs, Strings, Transduction, up_to_end_mark

BITS = ("0", "1")
LETTERS = ("a", "b")
MISSING, PADDING = 2, 3
OPERATOR = 2


def duplicate_string(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for duplication: y is x twice."""
    x = generator.integers(0, 2, size=(count, length))
    return x, np.concatenate([x, x], axis=1)


def missing_duplicate(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for a missing duplicate: x is a string twice with one symbol hidden, y that symbol.

    An x of odd length is padded with "=".
    """
    half = generator.integers(0, 2, size=(count, length // 2))
    x = np.concatenate([half, half, np.full((count, length % 2), PADDING)], axis=1)
    position = generator.integers(0, 2 * (length // 2), size=count)
    rows = np.arange(count)
    y = x[rows, position][:, None]
    x[rows, position] = MISSING
    return x, y


def odds_first(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for odds first: y has the symbols at odd positions (counted from 1), then those at even ones."""
    x = generator.integers(0, 2, size=(count, length))
    return x, np.concatenate([x[:, ::2], x[:, 1::2]], axis=1)


def bucket_sort(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for sorting: y has the digits 0 to 4 of x in order."""
    x = generator.integers(0, 5, size=(count, length))
    return x, np.sort(x, axis=1)


def compute_sqrt(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for square roots: y is the integer part of the root of x, in half as many bits, highest first."""
    x = generator.integers(0, 2, size=(count, length))
    numbers = [int("".join(map(str, row)), 2) for row in x]
    return x, _bits([math.isqrt(number) for number in numbers], (length + 1) // 2)[:, ::-1].copy()


def binary_addition(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for addition of binary numbers, lowest bit first; y ends with an end mark and padding of 0."""
    return _binary(length, count, generator, lambda left, right: left + right)


def binary_multiplication(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for multiplication of binary numbers, lowest bit first; y ends with an end mark and padding of 0."""
    return _binary(length, count, generator, lambda left, right: left * right)


def _binary(length: int, count: int, generator: Generator, operation: Callable[[int, int], int]) -> Pairs:
    """Sample x of two numbers with an operator at a uniform position between them; y has as many symbols as x."""
    x = generator.integers(0, 2, size=(count, length))
    y = np.zeros((count, length), dtype=np.int64)
    for row, position in enumerate(generator.integers(1, length - 1, size=count)):
        x[row, position] = OPERATOR
        left, right = (int("".join(map(str, part[::-1])), 2) for part in (x[row, :position], x[row, position + 1 :]))
        result = operation(left, right)
        size = max(result.bit_length(), 1)
        y[row, :size] = _bits([result], size)
        y[row, size] = END_MARK
    return x, y


def _bits(numbers: list[int], size: int) -> Strings:
    """Return the bits of numbers, lowest first, (N, size)."""
    return np.array([[number >> bit & 1 for bit in range(size)] for number in numbers], dtype=np.int64).reshape(
        -1, size
    )


_SENSITIVE = "context-sensitive"
CONTEXT_SENSITIVE = (
    Transduction("duplicate-string", "a string twice", LETTERS, LETTERS, duplicate_string, _SENSITIVE),
    Transduction(
        "missing-duplicate",
        "the hidden symbol of a string written twice",
        (*LETTERS, "?", "="),
        LETTERS,
        missing_duplicate,
        _SENSITIVE,
        min_length=2,
    ),
    Transduction(
        "odds-first", "the symbols at odd positions, then the others", LETTERS, LETTERS, odds_first, _SENSITIVE
    ),
    Transduction(
        "binary-addition",
        "the sum of two binary numbers",
        (*BITS, "+"),
        (*BITS, "END"),
        binary_addition,
        _SENSITIVE,
        min_length=3,
        counted=up_to_end_mark,
    ),
    Transduction(
        "binary-multiplication",
        "the product of two binary numbers",
        (*BITS, "*"),
        (*BITS, "END"),
        binary_multiplication,
        _SENSITIVE,
        min_length=3,
        counted=up_to_end_mark,
    ),
    Transduction("compute-sqrt", "the integer part of a square root", BITS, BITS, compute_sqrt, _SENSITIVE),
    Transduction(
        "bucket-sort",
        "the digits 0 to 4 in order",
        ("0", "1", "2", "3", "4"),
        ("0", "1", "2", "3", "4"),
        bucket_sort,
        _SENSITIVE,
    ),
)
