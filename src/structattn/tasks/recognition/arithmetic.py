"""The binary languages of FLaRe: sums, products and square roots, least significant bit first."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.random import Generator

from structattn.tasks.recognition.language import FlareLanguage, NextSymbols, String
from structattn.tasks.recognition.regular import BITS

Root: TypeAlias = Callable[[int], int]
OPERATOR, EQUALS, END = 2, 3, 4  # of sums and products; "=" of roots takes the place of the operator
_WORD_BITS = 32


def value(bits: String) -> int:
    """Return the number that bits write, least significant first."""
    return sum(bit << place for place, bit in enumerate(bits))


def bits_of(number: int, size: int) -> String:
    """Write a number in ``size`` bits, least significant first."""
    return tuple(number >> place & 1 for place in range(size))


def below(bound: int, generator: Generator) -> int:
    """Draw a number uniformly from 0 to ``bound`` - 1, of any size, by rejection of random bits."""
    size = (bound - 1).bit_length()
    while True:
        words = generator.integers(1 << _WORD_BITS, size=-(-size // _WORD_BITS)).tolist()
        number: int = sum(each << _WORD_BITS * place for place, each in enumerate(words)) & ((1 << size) - 1)
        if number < bound:
            return number


def sizes(extra: int, concentrations: tuple[float, ...], generator: Generator) -> list[int]:
    """Distribute ``extra`` symbols over numbers of at least one symbol, by shares from a Dirichlet distribution."""
    shares = generator.dirichlet(concentrations)
    cuts = [0, *np.floor(np.cumsum(shares)[:-1] * extra).astype(int).tolist(), extra]
    return [1 + int(end - start) for start, end in pairwise(cuts)]


def _split(string: String, marks: tuple[int, ...]) -> list[String] | None:
    """Split a string at marks that occur once each, in this order; None if it is not nonempty bits between them."""
    places = [place for place, symbol in enumerate(string) if symbol > 1]
    if tuple(string[place] for place in places) != marks:
        return None
    cuts = zip([-1, *places], [*places, len(string)], strict=True)
    parts = [string[start + 1 : end] for start, end in cuts]
    return parts if all(parts) else None


def _next_symbols(string: String, marks: tuple[int, ...]) -> NextSymbols:
    """Return the sets of a member: free bits, then the shortest way to write the last number, which is the result."""
    parts = _split(string, marks)
    assert parts is not None
    bits, end = frozenset({0, 1}), marks[-1] + 1
    found: NextSymbols = []
    for part, mark in zip(parts, marks, strict=False):
        found += [bits] + [bits | {mark}] * len(part)
    result = value(parts[-1])
    shortest = max(1, result.bit_length())
    found += [frozenset({bit}) for bit in bits_of(result, shortest)]
    return found + [frozenset({0, end})] * (len(parts[-1]) - shortest + 1)


def _results(
    name: str,
    description: str,
    signs: tuple[str, ...],
    apply: Callable[..., int],
    sample: Callable[[int, Generator], String],
) -> FlareLanguage:
    """Return the language of numbers with signs between them, of which the last is the result of the others."""
    marks = tuple(range(OPERATOR, OPERATOR + len(signs)))

    def accepts(string: String) -> bool:
        parts = _split(string, marks)
        return parts is not None and apply(*map(value, parts[:-1])) == value(parts[-1])

    return FlareLanguage(
        name,
        description,
        (*BITS, *signs),
        lambda length: length >= 2 * len(signs) + 1,
        sample,
        accepts,
        partial(_next_symbols, marks=marks),
        (0, 0, *range(1, len(signs) + 1)),
        lambda string: _split(string, marks) is not None,
    )


def operation(
    name: str, description: str, sign: str, apply: Callable[[int, int], int], greatest: Callable[[int, int, int], int]
) -> FlareLanguage:
    """Return the language of x sign y = z.

    Args:
        name: the name of the language.
        description: one line.
        sign: the symbol of the operation.
        apply: x, y -> z.
        greatest: x, the greatest y that fits its bits, the greatest z -> the greatest y; a sum also limits x.
    """
    is_sum = sign == "+"
    concentrations = (1.0, 1.0, 1.0) if is_sum else (1.0, 1.0, 2.0)

    def sample(length: int, generator: Generator) -> String:
        size_x, size_y, size_z = sizes(length - 5, concentrations, generator)
        size_x, size_y = sorted((size_x, size_y))
        most_z = 2**size_z - 1
        most_x = min(2**size_x - 1, most_z) if is_sum else 2**size_x - 1
        x = below(most_x + 1, generator)
        y = below(greatest(x, 2**size_y - 1, most_z) + 1, generator)
        operands = [bits_of(x, size_x), bits_of(y, size_y)]
        if generator.random() < 0.5:
            operands.reverse()
        return (*operands[0], OPERATOR, *operands[1], EQUALS, *bits_of(apply(x, y), size_z))

    return _results(name, description, (sign, "="), apply, sample)


def double_root(number: int) -> int:
    """Return the integer part of the square root in double precision, which differs from 88 bits on, as in FLaRe.

    The root of a number beyond doubles, of more than 1,024 bits, is exact.
    """
    try:
        return math.floor(math.sqrt(number))
    except OverflowError:
        return math.isqrt(number)


def square_root(root: Root) -> FlareLanguage:
    """Return the language of x = root(x)."""

    def sample(length: int, generator: Generator) -> String:
        size_x, size_z = sizes(length - 3, (2.0, 1.0), generator)
        x = below(min(2**size_x, 2 ** (2 * size_z)), generator)
        return (*bits_of(x, size_x), OPERATOR, *bits_of(root(x), size_z))

    return _results("compute-sqrt", "x and the integer part of its square root", ("=",), root, sample)


OPERATIONS = (
    operation(
        "binary-addition",
        "x + y = z in bits, least significant first",
        "+",
        lambda x, y: x + y,
        lambda x, most_y, most_z: min(most_y, most_z - x),
    ),
    operation(
        "binary-multiplication",
        "x × y = z in bits, least significant first",
        "×",
        lambda x, y: x * y,
        lambda x, most_y, most_z: min(most_y, most_z // x) if x else most_y,
    ),
)
