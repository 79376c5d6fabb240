"""Formulas over the surprisals of regions, in which SyntaxGym's suites state their predictions.

    statement    = comparison {("&" | "|") comparison}
    comparison   = sum [("<" | ">" | "=") sum]
    sum          = term {("+" | "-") term}
    term         = ["-"] number | region | "(" statement ")" | "[" statement "]"
    region       = "(" (digits | "*") ";" "%" condition "%" ")"

``(2;%match%)`` is the surprisal of region 2 in condition ``match``, ``(*;%match%)`` that of all its regions together.
As in the authors' own tool, ``=`` holds up to 0.001 + 0.00001 |b|, and ``&`` and ``|`` bind equally strongly, from left
to right. Square brackets, which occur in suites, mean the same as parentheses.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

from structattn.support.errors import quoted

Surprisals = Mapping[tuple[str, int], float]
"""Condition and number of a region -> its surprisal."""

_TOKEN = re.compile(
    r"\s*(?:\(\s*(?P<region>[0-9]{1,9}|\*)\s*;\s*%(?P<condition>[^%]+)%\s*\)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))|(?P<operator>[-+<>=&|()\[\]]))"
)
_END = ""
_MOST_NESTED = 64


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=0, abs_tol=1e-3 + 1e-5 * abs(b))


_LEVELS: Final[tuple[Mapping[str, Callable[[float, float], float]], ...]] = (
    {"|": lambda a, b: a or b, "&": lambda a, b: a and b},
    {"<": operator.lt, ">": operator.gt, "=": _equal},
    {"+": operator.add, "-": operator.sub},
)
"""Operators that bind equally strongly, the weakest first."""
_LOGICAL, _ARITHMETIC = "|&", "+-"
_CLOSING: Final = {"(": ")", "[": "]"}


@dataclass(frozen=True)
class Formula:
    """A statement about the surprisals of an item.

    Args:
        references: the regions that occur in it: condition and number, None for all regions together.
    """

    text: str
    holds: Callable[[Surprisals], bool]
    references: frozenset[tuple[str, int | None]]


class _Part(NamedTuple):
    """A part of a formula: what it computes, and whether that is true or false rather than a number."""

    value: Callable[[Surprisals], float]
    is_truth: bool


class _Token(NamedTuple):
    text: str
    column: int
    match: re.Match[str] | None


def parse_formula(text: str) -> Formula:
    """Parse a formula.

    Raises:
        ValueError: it is not one; the message gives the column, counted from 1.
    """
    parser = _Parser(list(_tokens(text)))
    part = parser.parse(0)
    parser.expect(_END, "an operator or the end")
    if not part.is_truth:
        raise ValueError("column 1: is a number; expected a comparison")
    return Formula(text, lambda surprisals: bool(part.value(surprisals)), frozenset(parser.references))


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].lstrip()
            column = len(text) - len(rest) + 1
            raise ValueError(f"column {column}: found {quoted(rest, 20)}; expected a region, number or operator")
        token = match[0].strip()
        yield _Token(token, match.end() - len(token) + 1, match)
        position = match.end()
    yield _Token(_END, end + 1, None)


class _Parser:
    """Parses tokens by recursive descent."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._next, self._nested = tokens, 0, 0
        self.references: set[tuple[str, int | None]] = set()

    @property
    def _current(self) -> _Token:
        return self._tokens[self._next]

    def parse(self, level: int) -> _Part:
        """Parse operands that are joined by the operators of a level, from left to right."""
        if level == len(_LEVELS):
            return self._term()
        first, is_truth = self.parse(level + 1)
        steps = list[tuple[Callable[[float, float], float], Callable[[Surprisals], float]]]()
        while self._current.text in _LEVELS[level]:
            token = self._current
            self._next += 1
            right = self.parse(level + 1)
            is_truth = _require_joinable(token, is_truth, right.is_truth)
            steps.append((_LEVELS[level][token.text], right.value))

        def value(given: Surprisals) -> float:
            return reduce(lambda left, step: step[0](left, step[1](given)), steps, first(given))

        return _Part(value if steps else first, is_truth)

    def expect(self, text: str, expected: str) -> None:
        """Go on after a token with this text."""
        if self._current.text != text:
            raise self._unexpected(expected)
        self._next += 1

    def _unexpected(self, expected: str) -> ValueError:
        token = self._current
        return ValueError(f"column {token.column}: found {quoted(token.text or 'the end', 40)}; expected {expected}")

    def _term(self) -> _Part:
        token = self._current
        if (number := self._number()) is not None:
            return _Part(lambda _: number, is_truth=False)
        if token.match is not None and token.match["condition"]:
            self._next += 1
            return self._region(token.match["condition"], token.match["region"])
        if token.text not in _CLOSING or self._nested == _MOST_NESTED:
            raise self._unexpected("a region such as (2;%match%), a number or a parenthesis")
        self._next, self._nested = self._next + 1, self._nested + 1
        inner, closing = self.parse(0), _CLOSING[token.text]
        self.expect(closing, f"an operator or {closing!r}")
        self._nested -= 1
        return inner

    def _number(self) -> float | None:
        """Parse a number with its sign, if there is one."""
        negative = self._current.text == "-"
        token = self._tokens[min(self._next + negative, len(self._tokens) - 1)]
        if token.match is None or not token.match["number"]:
            return None
        self._next += 1 + negative
        return -float(token.text) if negative else float(token.text)

    def _region(self, condition: str, number: str) -> _Part:
        if number == "*":
            self.references.add((condition, None))
            return _Part(lambda given: sum(value for key, value in given.items() if key[0] == condition), False)
        key = condition, int(number)
        self.references.add(key)
        return _Part(lambda given: given[key], is_truth=False)


def _require_joinable(token: _Token, left: bool, right: bool) -> bool:
    """Check whether operands are true or false as their operator expects, and return whether the result is."""
    logical = token.text in _LOGICAL
    if not left == right == logical:
        raise ValueError(f"column {token.column}: {token.text!r} joins {'comparisons' if logical else 'numbers'} only")
    return token.text not in _ARITHMETIC
