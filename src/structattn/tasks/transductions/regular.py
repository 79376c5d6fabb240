"""The regular tasks of the Chomsky-hierarchy suite (Delétang et al. 2023, table 1)."""

import numpy as np
from numpy.random import Generator

from structattn.tasks.transductions.expressions import DIGITS, MODULUS, value_of_flat
from structattn.tasks.transductions.transduction import Pairs, Transduction

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
