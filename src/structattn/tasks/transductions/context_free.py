"""The deterministic context-free tasks of the Chomsky-hierarchy suite (Delétang et al. 2023, table 1)."""

import numpy as np
from numpy.random import Generator

from structattn.tasks.transductions.regular import DIGITS, MINUS, MODULUS, PLUS, RIGHT, TIMES, expression
from structattn.tasks.transductions.transduction import (
    END_MARK,
    PADDING,
    Pairs,
    Strings,
    Transduction,
    before_padding,
    up_to_end_mark,
)

BITS = ("a", "b")
EXPRESSION = (*DIGITS, "+", "-", "*", "(", ")")
POP, PUSH_A = 2, 3
UNKNOWN, EQUALS = RIGHT + 1, RIGHT + 2
CONGRUENT = RIGHT + 1


def reverse_string(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for reversal: y is x backwards."""
    x = generator.integers(0, 2, size=(count, length))
    return x, x[:, ::-1].copy()


def stack_manipulation(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for stack manipulation: x is a stack, bottom first, then actions; y the final stack, top first.

    The height of the initial stack is uniform over 1 to length - 1, its symbols and the actions are uniform; popping
    the empty stack does nothing. y has length + 1 symbols: the stack, an end mark, and padding with "a".
    """
    height = np.ones(count, dtype=np.int64) if length == 1 else generator.integers(1, length, size=count)
    position = np.arange(length)
    symbols, actions = generator.integers(0, 2, size=(count, length)), generator.integers(2, 5, size=(count, length))
    x = np.where(position < height[:, None], symbols, actions)
    return x, _final_stacks(x)


def stack_manipulation_padded(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for stack manipulation as printed in Li et al. (2024): padding follows the stack, without end mark.

    Only the stack counts for accuracy; an empty one leaves nothing to count.
    """
    x, y = stack_manipulation(length, count, generator)
    return x, np.where(up_to_end_mark(y), y, PADDING)  # the end mark has the same index


def _final_stacks(x: Strings) -> Strings:
    """Apply all symbols, the initial ones as pushes, to all stacks at once."""
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
    return np.where(from_top == -1, END_MARK, y)


def modular_arithmetic(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for modular arithmetic: y is the value of an expression with brackets, mod 5."""
    drawn = [expression(length, (PLUS, MINUS, TIMES), generator) for _ in range(count)]
    x = np.array([symbols for symbols, _ in drawn], dtype=np.int64).reshape(count, length)
    return x, np.array([[value] for _, value in drawn], dtype=np.int64).reshape(count, 1)


def modular_arithmetic_congruence(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for modular arithmetic as printed in Li et al. (2024): a congruence sign follows the expression."""
    x, y = modular_arithmetic(length - 1, count, generator)
    return np.concatenate([x, np.full((count, 1), CONGRUENT, dtype=np.int64)], axis=1), y


def solve_equation(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for equations: x is an expression with one digit replaced by z, and its value; y is the digit.

    The digit is the first one at or after a uniformly drawn position, cyclically. Only + and - occur, so that the
    solution is unique.
    """
    x, y = np.empty((count, length), dtype=np.int64), np.empty((count, 1), dtype=np.int64)
    for row in range(count):
        symbols, value = expression(length - 2, (PLUS, MINUS), generator)
        start = int(generator.integers(0, length - 2))
        cycle = range(start, start + length - 2)
        position = next(i % (length - 2) for i in cycle if symbols[i % (length - 2)] < MODULUS)
        y[row] = symbols[position]
        x[row] = [*symbols[:position], UNKNOWN, *symbols[position + 1 :], EQUALS, value]
    return x, y


_FREE = "deterministic context-free"
CONTEXT_FREE = (
    Transduction("reverse-string", "a string backwards", BITS, BITS, reverse_string, _FREE),
    Transduction(
        "stack-manipulation",
        "the stack after a sequence of actions, from the top",
        (*BITS, "POP", "PUSH-a", "PUSH-b"),
        (*BITS, "END"),
        stack_manipulation,
        _FREE,
        counted=up_to_end_mark,
    ),
    Transduction(
        "stack-manipulation-padded",
        "stack-manipulation with padding after the stack, as printed in Li et al. (2024)",
        (*BITS, "POP", "PUSH-a", "PUSH-b"),
        (*BITS, "PAD"),
        stack_manipulation_padded,
        _FREE,
        counted=before_padding,
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
        "modular-arithmetic-congruence",
        "modular-arithmetic with ≡ after the expression, as printed in Li et al. (2024)",
        (*EXPRESSION, "≡"),
        DIGITS,
        modular_arithmetic_congruence,
        _FREE,
        min_length=2,
    ),
    Transduction(
        "solve-equation",
        "the unknown digit of an equation mod 5",
        (*EXPRESSION, "z", "="),
        DIGITS,
        solve_equation,
        _FREE,
        min_length=3,
    ),
)
