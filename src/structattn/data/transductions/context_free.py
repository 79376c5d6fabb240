"""The deterministic context-free tasks of the Chomsky-hierarchy suite, on which Li et al. (2024, section 4) report."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.data.transductions.arithmetic import MINUS, MODULUS, PLUS, RIGHT, TIMES, expression
from structattn.data.transductions.transduction import Pairs, Strings, Transduction

BITS = ("a", "b")
DIGITS = tuple(str(digit) for digit in range(MODULUS))
EXPRESSION = (*DIGITS, "+", "-", "*", "(", ")")
POP, PUSH_A, PUSH_B, END = 2, 3, 4, 2
UNKNOWN, EQUALS = RIGHT + 1, RIGHT + 2


def reverse_string(length: int, count: int, generator: Generator) -> Pairs:
    """Y is x backwards."""
    x = generator.integers(0, 2, size=(count, length))
    return x, x[:, ::-1].copy()


def stack_manipulation(length: int, count: int, generator: Generator) -> Pairs:
    """X is a stack from the bottom to the top, then actions; y the stack that they leave, from the top to the bottom.

    The height of the first stack is uniform over 1 to length - 1, its symbols and the actions are uniform; a pop of the
    empty stack does nothing. y has length + 1 symbols: the stack, an end mark, and a filling of "a".
    """
    height = np.ones(count, dtype=np.int64) if length == 1 else generator.integers(1, length, size=count)
    place = np.arange(length)
    symbols, actions = generator.integers(0, 2, size=(count, length)), generator.integers(2, 5, size=(count, length))
    x = np.where(place < height[:, None], symbols, actions)
    return x, _final_stacks(x)


def _final_stacks(x: Strings) -> Strings:
    """Apply all symbols, the first ones as pushes, to all stacks at once."""
    count, length = x.shape
    stack, height, rows = (
        np.zeros((count, length + 1), dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.arange(count),
    )
    for column in x.T:
        pushes = column != POP
        stack[rows[pushes], height[pushes]] = np.where(column < POP, column, column - PUSH_A)[pushes]
        height = np.where(pushes, height + 1, np.maximum(height - 1, 0))
    from_top = height[:, None] - 1 - np.arange(length + 1)
    y = np.where(from_top >= 0, np.take_along_axis(stack, np.maximum(from_top, 0), axis=1), 0)
    return np.where(from_top == -1, END, y)


def up_to_the_end(outputs: Strings) -> NDArray[np.bool_]:
    """What counts for accuracy: the stack and its end mark, not the filling."""
    ends = np.argmax(outputs == END, axis=1)
    counted: NDArray[np.bool_] = np.arange(outputs.shape[1]) <= ends[:, None]
    return counted


def modular_arithmetic(length: int, count: int, generator: Generator) -> Pairs:
    """The value of an expression with brackets, mod 5."""
    drawn = [expression(length, (PLUS, MINUS, TIMES), generator) for _ in range(count)]
    x = np.array([symbols for symbols, _ in drawn], dtype=np.int64).reshape(count, length)
    return x, np.array([[value] for _, value in drawn], dtype=np.int64).reshape(count, 1)


def solve_equation(length: int, count: int, generator: Generator) -> Pairs:
    """An expression in which one digit is hidden as z, and its value: y is the digit.

    The hidden digit is the first one at or after a uniformly drawn place, going round at the end. Only + and - occur,
    so that there is one solution.
    """
    x, y = np.empty((count, length), dtype=np.int64), np.empty((count, 1), dtype=np.int64)
    for row in range(count):
        symbols, value = expression(length - 2, (PLUS, MINUS), generator)
        start = int(generator.integers(0, length - 2))
        turned = range(start, start + length - 2)
        place = next(i % (length - 2) for i in turned if symbols[i % (length - 2)] < MODULUS)
        y[row] = symbols[place]
        x[row] = [*symbols[:place], UNKNOWN, *symbols[place + 1 :], EQUALS, value]
    return x, y


_FREE = "deterministic context-free"
CONTEXT_FREE = (
    Transduction("reverse-string", "a string backwards", BITS, BITS, reverse_string, _FREE),
    Transduction(
        "stack-manipulation",
        "the stack that actions leave, from its top",
        (*BITS, "POP", "PUSH-a", "PUSH-b"),
        (*BITS, "END"),
        stack_manipulation,
        _FREE,
        counted=up_to_the_end,
    ),
    Transduction(
        "modular-arithmetic",
        "the value mod 5 of an expression with brackets",
        EXPRESSION,
        DIGITS,
        modular_arithmetic,
        _FREE,
    ),
    Transduction(
        "solve-equation",
        "the digit that an equation mod 5 hides",
        (*EXPRESSION, "z", "="),
        DIGITS,
        solve_equation,
        _FREE,
        shortest=3,
    ),
)
