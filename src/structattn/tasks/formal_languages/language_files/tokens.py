"""Symbols, operators and weights of language files, with their places."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from structattn.support.errors import DataError

EMPTY = "ε"
MAX_CHARACTERS = 100  # of a symbol, and of a weight


class Place(NamedTuple):
    """A place in a file: the number of a line, counted from 1, its text, and the index of a character."""

    path: Path
    line: int
    text: str
    character: int

    def error(self, reason: str) -> DataError:
        """Return an error that names the place, with the column in bytes."""
        return DataError(self.path, reason, self.line, len(self.text[: self.character].encode()) + 1)


class Token(NamedTuple):
    """A part of a line.

    Args:
        kind: ``bare`` and ``quoted`` are symbols; ``operator``, ``weight``, and ``end`` of a line.
        text: as written, without the quotes of a symbol and the brackets of a weight.
        place: of its first character.
    """

    kind: str
    text: str
    place: Place

    def __str__(self) -> str:
        return {"end": "the end of the line", "weight": f"[{self.text}]"}.get(self.kind, repr(self.text))

    @property
    def is_symbol(self) -> bool:
        """Whether it is a symbol; ε and '' are none."""
        return self.kind in {"bare", "quoted"} and not self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether it is the empty string: ε, or quotes without a symbol."""
        return (self.kind, self.text) in {("bare", EMPTY), ("quoted", "")}

    def is_operator(self, *operators: str) -> bool:
        """Whether it is one of some operators, without quotes."""
        return self.kind == "operator" and self.text in operators


@dataclass(frozen=True)
class Syntax:
    """How lines are split.

    Args:
        operators: they separate symbols, also without spaces.
    """

    operators: tuple[str, ...]

    def tokens(self, lines: Sequence[str], path: Path) -> Iterator[Token]:
        """Yield the tokens of all lines, each line with its end; ``#`` begins a comment.

        Raises:
            DataError: a character belongs to no token, or a symbol is too long.
        """
        for number, line in enumerate(lines, start=1):
            yield from self._split(Place(path, number, line, 0))
            yield Token("end", "", Place(path, number, line, len(line)))

    def _split(self, place: Place) -> Iterator[Token]:
        line = place.text
        start = _start(line, 0)
        while start < len(line) and line[start] != "#":
            place = place._replace(character=start)
            found = self._pattern.match(line, start)
            if found is None or found.lastgroup is None:
                raise place.error(_reason(line[start : start + 20]))
            kind, text = found.lastgroup, found[found.lastgroup]
            if len(text) > MAX_CHARACTERS:
                raise place.error(f"{text[:20]!r}... has {len(text)} characters; expected at most {MAX_CHARACTERS}")
            yield Token("quoted" if kind == "single" else kind, text, place)
            start = _start(line, found.end())

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        operators = "|".join(map(re.escape, self.operators)) or "(?!)"
        end = rf"(?=[ \t\[\]#]|{operators}|$)"
        return re.compile(
            rf"(?P<operator>{operators})|\[(?P<weight>[^\[\]#]*)\]"
            rf"|'(?P<single>[^']*)'{end}|\"(?P<quoted>[^\"]*)\"{end}"
            rf"|(?P<bare>(?:(?!{operators})[^\s\[\]#'\"])+'*){end}"
        )


def _start(line: str, index: int) -> int:
    """Return the index of the first character at or after ``index`` that is neither a space nor a tab."""
    while index < len(line) and line[index] in " \t":
        index += 1
    return index


def _reason(rest: str) -> str:
    found = f"{rest[0]!r}" if rest[0].isprintable() else f"U+{ord(rest[0]):04X}"
    if rest[0] in "'\"":
        return f"a quote {found} that no other closes before a space; expected 'symbol' or \"symbol\""
    if rest[0] in "[]":
        return f"{found} without its counterpart; expected a weight such as [0.4] or [2/5], or quotes: '{rest[0]}'"
    return f"{rest!r} is not a symbol; expected letters, digits and signs, or quotes around the symbol"


def lines_of(tokens: Iterable[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each line, its end included; lines without others are skipped."""
    line: list[Token] = []
    for token in tokens:
        line.append(token)
        if token.kind == "end":
            if len(line) > 1:
                yield line
            line = []


def weight_of(token: Token) -> Fraction:
    """Return the value of a weight.

    Raises:
        DataError: it is not a decimal or fraction above 0.
    """
    text = token.text.strip()
    if not re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+|[0-9]+/0*[1-9][0-9]*", text) or not (value := Fraction(text)):
        raise token.place.error(f"the weight is {text!r}; expected a number above 0, such as 0.4 or 2/5")
    return value
