"""All transductions: regular, context-free and context-sensitive, and those of formal languages."""

import re
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.settings.base import hint_for_name
from structattn.support.errors import UsageError
from structattn.support.plugins import Plugin, Registry
from structattn.tasks.formal_languages.copying import COPYING_LANGUAGES
from structattn.tasks.formal_languages.registry import Language, formal_language
from structattn.tasks.transductions.context_sensitive import CONTEXT_SENSITIVE
from structattn.tasks.transductions.transduction import (
    END_MARK,
    PADDING,
    Pairs,
    Strings,
    Transduction,
    before_padding,
    up_to_end_mark,
)

MODULUS = 5
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
DIGITS = tuple(str(digit) for digit in range(MODULUS))


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


EXPRESSION = (*DIGITS, "+", "-", "*", "(", ")")
POP, PUSH_A, PUSH_B = 2, 3, 4
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


NO, YES = 0, 1
MAX_TRIES = 1000  # to find a string outside the language; if all fail, there is probably none at this distance
_REVERSALS = ("marked-reversal", "unmarked-reversal")
COMPLETABLE = (*_REVERSALS, *(name for name in COPYING_LANGUAGES if name != "count-3"))
"""The languages whose strings are determined by their first word."""


@cache
def recognition(language_name: str, edits: int) -> Transduction:
    """Return the task of deciding whether x is in a language; "yes" and "no" are equally likely.

    A "no" is a string of the language in which ``edits`` symbols at positions drawn without replacement were replaced,
    drawn again until the result is outside the language. Its edit distance from the language is from 1 to ``edits``.
    Both kinds of x have the same lengths, so length is not informative.

    Args:
        language_name: the name of a formal language.
        edits: the number of replaced symbols, at least 1.

    Raises:
        UsageError: no language has that name, or ``edits`` is below 1.
    """
    if edits < 1:
        raise UsageError(f"recognition of {language_name} at edit distance {edits}; expected at least 1")
    language = formal_language(language_name)

    def draw(length: int, count: int, generator: Generator) -> Pairs:
        positive = generator.integers(0, 2, size=count)
        x = np.array(language.sample_each([length] * count, generator), dtype=np.int64).reshape(count, length)
        for row in np.flatnonzero(positive == NO):
            x[row] = _outside(language, x[row], edits, generator)
        return x, positive[:, None]

    return Transduction(
        name=f"recognise:{language_name}:{edits}",
        description=f"whether a string is in {language_name}; others are up to {edits} edits away",
        inputs=language.alphabet,
        outputs=("no", "yes"),
        draw=draw,
        level="recognition",
        has_length=lambda length: length >= edits and bool(language.valid_lengths(length, length)),
    )


def _outside(language: Language, string: Strings, edits: int, generator: Generator) -> Strings:
    """Replace symbols of a string so that it is outside the language."""
    size, symbols = len(string), len(language.alphabet)
    for _ in range(MAX_TRIES):
        positions = generator.choice(size, size=edits, replace=False)
        changed = string.copy()
        changed[positions] = (changed[positions] + generator.integers(1, symbols, size=edits)) % symbols
        if language.log_probabilities([changed])[0] == -np.inf:
            return changed
    raise UsageError(
        f"{language.name}: found no string of length {size} outside the language at {edits} edits; "
        "use greater lengths or fewer edits"
    )


@cache
def completion(language_name: str) -> Transduction:
    """Return the task of completing a string: x is its first word, and y the rest, which the word determines.

    Raises:
        UsageError: strings of that language are not determined by their first word.
    """
    if language_name not in COMPLETABLE:
        raise UsageError(
            f"{language_name} is not determined by the first word; expected one of {', '.join(COMPLETABLE)}"
        )
    language = formal_language(language_name)
    total_length = _total_length(language_name)

    def draw(length: int, count: int, generator: Generator) -> Pairs:
        strings = language.sample_each([total_length(length)] * count, generator)
        rows = np.array(strings, dtype=np.int64).reshape(count, total_length(length))
        return rows[:, :length], rows[:, length:]

    return Transduction(
        name=f"complete:{language_name}",
        description=f"the rest of a string of {language_name} after its first word",
        inputs=language.alphabet,
        outputs=language.alphabet,
        draw=draw,
        level="completion",
    )


def _total_length(name: str) -> Callable[[int], int]:
    """Return the function that maps the length of the first word to that of the string."""
    if name in _REVERSALS:
        return lambda length: 2 * length + (name == "marked-reversal")
    language = COPYING_LANGUAGES[name]
    return lambda length: language.times * length + language.marks


TRANSDUCTIONS: Registry[Transduction] = Registry(
    "transduction", {task.name: task for task in (*CONTEXT_FREE, *REGULAR, *CONTEXT_SENSITIVE)}
)


def add_transduction(task: Transduction, plugin: Plugin) -> None:
    """Add a transduction of a plugin.

    Raises:
        UsageError: the name is taken.
    """
    TRANSDUCTIONS.add(task.name, task, plugin)


def transduction(name: str) -> Transduction:
    """Return the transduction of that name.

    Args:
        name: a key of ``TRANSDUCTIONS``; or ``recognise:LANGUAGE:EDITS`` or ``complete:LANGUAGE``, a formal language
            as a transduction.

    Raises:
        UsageError: none has that name.
    """
    if name in TRANSDUCTIONS:
        return TRANSDUCTIONS[name]
    pose, *arguments = name.split(":")
    if pose == "recognise" and len(arguments) == 2 and re.fullmatch("[0-9]+", arguments[1]):
        return recognition(arguments[0], int(arguments[1]))
    if pose == "complete" and len(arguments) == 1:
        return completion(arguments[0])
    known = ", ".join([*TRANSDUCTIONS, "recognise:LANGUAGE:EDITS", "complete:LANGUAGE"])
    hint = hint_for_name(name, TRANSDUCTIONS)
    raise UsageError(f"transduction {name!r} is unknown; expected one of {known}{hint}")
