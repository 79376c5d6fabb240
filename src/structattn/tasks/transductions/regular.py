"""The regular tasks of the Chomsky-hierarchy suite (Delétang et al. 2023, table 1), and arithmetic expressions."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.tasks.transductions.transduction import Pairs, Transduction

MODULUS = 5
DIGITS = tuple(str(digit) for digit in range(MODULUS))
PLUS, MINUS, TIMES, LEFT, RIGHT = range(MODULUS, MODULUS + 5)  # after the digits, which are their own indices


def value_of_flat(x: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the values, (N,), of expressions without brackets: digit, operator, digit, ...; products bind tighter."""
    total = np.zeros(len(x), dtype=np.int64)
    product, sign = x[:, 0].copy(), np.ones(len(x), dtype=np.int64)
    for operator, digit in zip(x[:, 1::2].T, x[:, 2::2].T, strict=True):
        times = operator == TIMES
        total = np.where(times, total, total + sign * product)
        sign = np.where(times, sign, np.where(operator == MINUS, -1, 1))
        product = np.where(times, product * digit % MODULUS, digit)
    return (total + sign * product) % MODULUS


def expression(length: int, operators: tuple[int, ...], generator: Generator) -> tuple[list[int], int]:
    """Sample an expression with brackets, and return it with its value mod 5 (Delétang et al. 2023; Li et al. 2024).

    One symbol is a digit, two are "-d", three "(d)", four "(-d)"; more are "(left op right)" with the length of left
    uniform over 1 to length - 4. The loop is iterative, so long expressions need no deep recursion.
    """
    symbols: list[int] = []
    values: list[int] = []
    todo = [("expression", length)]
    draws = iter(generator.random(4 * length + 8))
    while todo:
        kind, argument = todo.pop()
        if kind == "symbol":
            symbols.append(argument)
        elif kind == "apply":
            right, left = values.pop(), values.pop()
            values.append(_apply(argument, left, right))
        elif argument <= 4:
            digit = int(next(draws) * MODULUS)
            symbols += _short(argument, digit)
            values.append(-digit % MODULUS if argument in (2, 4) else digit)
        else:
            left = 1 + int(next(draws) * (argument - 4))
            operator = operators[int(next(draws) * len(operators))]
            todo += [("apply", operator), ("symbol", RIGHT), ("expression", argument - left - 3)]
            todo += [("symbol", operator), ("expression", left), ("symbol", LEFT)]
    return symbols, values[0]


def _short(length: int, digit: int) -> list[int]:
    signed = [digit] if length in (1, 3) else [MINUS, digit]
    return signed if length <= 2 else [LEFT, *signed, RIGHT]


def _apply(operator: int, left: int, right: int) -> int:
    if operator == TIMES:
        return left * right % MODULUS
    return (left + (right if operator == PLUS else -right)) % MODULUS


BITS = ("a", "b")


def even_pairs(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for even pairs: the parity of the number of "ab" and "ba", which is 0 if the ends are equal."""
    x = generator.integers(0, 2, size=(count, length))
    return x, (x[:, :1] != x[:, -1:]).astype(np.int64)


def parity_check(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for parity: whether b occurs an odd number of times."""
    x = generator.integers(0, 2, size=(count, length))
    return x, x.sum(axis=1, keepdims=True) % 2


def cycle_navigation(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for cycle navigation: the end of a walk on a cycle of five; 0 stays, 1 goes forward, 2 goes back."""
    x = generator.integers(0, 3, size=(count, length))
    return x, np.array([0, 1, -1])[x].sum(axis=1, keepdims=True) % MODULUS


def modular_arithmetic_simple(length: int, count: int, generator: Generator) -> Pairs:
    """Sample pairs for arithmetic without brackets: y is the value of x mod 5; products bind tighter.

    An expression has odd length; an x of even length is padded with "=".
    """
    x = np.full((count, length), MODULUS + 3, dtype=np.int64)
    odd = length - 1 + length % 2
    x[:, 0:odd:2] = generator.integers(0, MODULUS, size=(count, (odd + 1) // 2))
    x[:, 1:odd:2] = generator.integers(MODULUS, MODULUS + 3, size=(count, odd // 2))
    return x, value_of_flat(x[:, :odd])[:, None]


REGULAR = (
    Transduction("even-pairs", "whether ab and ba occur an even number of times", BITS, BITS, even_pairs, "regular"),
    Transduction("parity-check", "whether b occurs an odd number of times", BITS, BITS, parity_check, "regular"),
    Transduction(
        "cycle-navigation", "the end of a walk on a cycle of five", ("0", "+", "-"), DIGITS, cycle_navigation, "regular"
    ),
    Transduction(
        "modular-arithmetic-simple",
        "the value mod 5 of an expression without brackets",
        (*DIGITS, "+", "-", "*", "="),
        DIGITS,
        modular_arithmetic_simple,
        "regular",
    ),
)
