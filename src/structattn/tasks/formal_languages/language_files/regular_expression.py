"""Files of regular expressions: ``(a b)* c | d+``."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from structattn.support.errors import DataError
from structattn.tasks.formal_languages.language_files.draft import Draft, DraftRule
from structattn.tasks.formal_languages.language_files.tokens import Place, Syntax, Token

SYNTAX = Syntax(("|", "*", "+", "?", "(", ")"))
MAX_DEPTH = 50
Symbols = tuple[str, ...]


def read_regular_expression(lines: Sequence[str], path: Path) -> Draft:
    """Read a regular expression as a grammar with a nonterminal for each choice.

    The alternatives of ``|`` are equally probable; ``x*``, ``x+`` and ``x?`` have one more x with probability 1/2.

    Raises:
        DataError: it is not a regular expression, or repeats what can be empty; the message names the place.
    """
    return _Parser(lines, path).draft()


class _Parser:
    """Recursive descent: alternatives of sequences of repetitions of symbols and groups."""

    def __init__(self, lines: Sequence[str], path: Path) -> None:
        tokens = list(SYNTAX.tokens(lines, path))
        end = tokens[-1]
        self._path = path
        self._pending = [end, *(each for each in reversed(tokens) if each.kind != "end")]  # from the last to the next
        self._terminals: dict[str, Place] = {}
        self._rules: list[DraftRule] = []
        self._nullable: set[str] = set()
        self._number = count(1)

    def draft(self) -> Draft:
        """Parse the whole file."""
        if self._at_end():
            raise DataError(self._path, "has no regular expression; expected one such as (a b)* c | d+")
        place = self._next.place
        start = self._choice("start", self._alternatives(0), place)
        if not self._at_end():
            raise self._next.place.error(f"found {self._next} without '('; expected the end of the file")
        return Draft(self._path, start, self._terminals, tuple(self._rules))

    @property
    def _next(self) -> Token:
        return self._pending[-1]

    def _at_end(self) -> bool:
        return self._next.kind == "end"

    def _alternatives(self, depth: int) -> list[Symbols]:
        found = [self._sequence(depth)]
        while self._next.is_operator("|"):
            self._pending.pop()
            found.append(self._sequence(depth))
        return found

    def _sequence(self, depth: int) -> Symbols:
        if self._at_end() or self._next.is_operator("|", "*", "+", "?", ")"):
            raise self._next.place.error(f"found {self._next}; expected a symbol, '(', or ε for the empty string")
        symbols: list[str] = []
        while not (self._at_end() or self._next.is_operator("|", ")")):
            symbols += self._repetition(depth)
        return tuple(symbols)

    def _repetition(self, depth: int) -> Symbols:
        symbols = self._group(depth)
        while self._next.is_operator("*", "+", "?"):
            operator = self._pending.pop()
            if (operator.text != "?" or not symbols) and self._nullable.issuperset(symbols):
                reason = f"'{operator.text}' follows what can be empty; expected something of at least one symbol"
                raise operator.place.error(reason)
            symbols = (self._repeated(symbols, operator),)
        return symbols

    def _group(self, depth: int) -> Symbols:
        token = self._pending.pop()
        if token.is_empty:
            return ()
        if token.kind == "bare" and not {"{", "}", "\\"}.isdisjoint(token.text):
            reason = "there are no counts, classes and escapes; expected a symbol"
            raise token.place.error(f"found {token}: {reason}, or '{token.text}' in quotes")
        if token.is_symbol:
            self._terminals.setdefault(token.text, token.place)
            return (token.text,)
        if not token.is_operator("("):
            raise token.place.error(f"found {token}; expected a symbol or '('; there are no classes such as [a-z]")
        if depth == MAX_DEPTH:
            raise token.place.error(f"parentheses are nested more than {MAX_DEPTH} deep")
        alternatives = self._alternatives(depth + 1)
        if not self._next.is_operator(")"):
            raise self._next.place.error(f"found {self._next}; expected ')' for '(' in line {token.place.line}")
        self._pending.pop()
        return alternatives[0] if len(alternatives) == 1 else (self._choice("choice", alternatives, token.place),)

    def _repeated(self, symbols: Symbols, operator: Token) -> str:
        name = self._new("repetition")
        rights = {"*": [(*symbols, name), ()], "+": [(*symbols, name), symbols], "?": [symbols, ()]}[operator.text]
        return self._add(name, rights, operator.place)

    def _choice(self, what: str, alternatives: list[Symbols], place: Place) -> str:
        return self._add(self._new(what), alternatives, place)

    def _new(self, what: str) -> str:
        return f"{what}:{next(self._number)}"

    def _add(self, name: str, rights: list[Symbols], place: Place) -> str:
        self._rules += [DraftRule(name, right, None, place) for right in rights]
        if any(self._nullable.issuperset(right) for right in rights):
            self._nullable.add(name)
        return name
