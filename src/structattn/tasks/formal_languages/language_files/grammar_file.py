"""Grammar files: ``S -> a S b [0.4] | a b [0.6]``."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from structattn.support.errors import DataError
from structattn.tasks.formal_languages.expected_length import has_expected_length
from structattn.tasks.formal_languages.grammar import Grammar, Rule
from structattn.tasks.formal_languages.language_files.draft import Draft, DraftRule
from structattn.tasks.formal_languages.language_files.tokens import EMPTY, Place, Syntax, Token, lines_of, weight_of

SYNTAX = Syntax(("->", "→", "|"))


@dataclass
class _Reader:
    """What was read so far.

    Args:
        path: the file.
        start: what ``%start`` names.
        alphabet: what ``%alphabet`` lists.
        consistent: false after ``%inconsistent``.
        alternatives: left-hand side, symbols, weight.
    """

    path: Path
    start: Token | None = None
    alphabet: list[Token] | None = None
    consistent: bool = True
    alternatives: list[tuple[Token, list[Token], Token | None]] = field(default_factory=list)

    def read(self, line: Sequence[Token]) -> None:
        """Read a line: a directive, a rule, or further alternatives of the rule before."""
        first, rest = line[0], line[1:]
        if first.kind == "bare" and first.text.startswith("%"):
            self._read_directive(first, rest[:-1])
        elif first.is_operator("|") and self.alternatives:
            self._read_alternatives(self.alternatives[-1][0], rest)
        elif first.kind != "bare" or not first.is_symbol:
            raise first.place.error(f"found {first}; expected a nonterminal, without quotes, as in S -> a S b")
        elif not rest[0].is_operator("->", "→"):
            raise rest[0].place.error(f"found {rest[0]} after {first}; expected ->")
        else:
            self._read_alternatives(first, rest[1:])

    def _read_directive(self, name: Token, symbols: Sequence[Token]) -> None:
        for each in symbols:
            if not each.is_symbol:
                raise each.place.error(f"found {each}; expected a symbol")
        if name.text == "%start" and self.start is None and len(symbols) == 1:
            self.start = symbols[0]
        elif name.text == "%alphabet" and self.alphabet is None and symbols:
            self.alphabet = list(symbols)
        elif name.text == "%inconsistent" and self.consistent and not symbols:
            self.consistent = False
        else:
            expected = "expected %start SYMBOL, %alphabet SYMBOLS or %inconsistent, each once"
            raise name.place.error(f"found {name}; {expected}")

    def _read_alternatives(self, left: Token, tokens: Sequence[Token]) -> None:
        symbols: list[Token] = []
        weight: Token | None = None
        for each in tokens:
            if each.kind == "end" or each.is_operator("|"):
                if not symbols:
                    raise each.place.error(f"found {each}; expected symbols, or ε for the empty string")
                self.alternatives.append((left, symbols, weight))
                symbols, weight = [], None
            elif weight is not None:
                raise each.place.error(f"found {each} after a weight; expected | or the end of the line")
            elif each.kind == "weight":
                weight = each
            elif each.kind == "operator":
                raise each.place.error(f"found {each}; expected one rule in a line, or '{each.text}' in quotes")
            else:
                symbols.append(each)

    def draft(self) -> Draft:
        """Return the grammar; nonterminals are the left-hand sides."""
        if not self.alternatives:
            raise DataError(self.path, "has no rules; expected some such as S -> a S b [0.4] | a b [0.6]")
        lefts = {left.text for left, _, _ in self.alternatives}
        start = self.alternatives[0][0] if self.start is None else self.start
        if start.text not in lefts:
            raise start.place.error(f"the start symbol {start.text} has no rule")
        declared = None if self.alphabet is None else _places(self.alphabet)
        terminals = {} if declared is None else dict(declared)
        for _, symbols, _ in self.alternatives:
            for each in symbols:
                if each.is_symbol and (each.kind == "quoted" or each.text not in lefts):
                    _check_terminal(each, declared)
                    terminals.setdefault(each.text, each.place)
        rules = tuple(
            DraftRule(
                left.text,
                tuple(each.text for each in symbols if each.is_symbol),
                None if weight is None else weight_of(weight),
                symbols[0].place,
            )
            for left, symbols, weight in self.alternatives
        )
        return Draft(self.path, start.text, terminals, rules, self.consistent)


def _places(symbols: Sequence[Token]) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for each in symbols:
        if each.text in places:
            raise each.place.error(f"{each} is listed twice; expected it once")
        places[each.text] = each.place
    return places


def _check_terminal(symbol: Token, declared: dict[str, Place] | None) -> None:
    if declared is not None:
        if symbol.text not in declared:
            raise symbol.place.error(f"{symbol.text!r} has no rule and is not in %alphabet; expected one of both")
    elif symbol.kind == "bare" and symbol.text[0].isupper():
        raise symbol.place.error(
            f"{symbol.text} has no rule; expected one, or '{symbol.text}' in quotes for a terminal"
        )
    elif symbol.kind == "bare" and re.fullmatch(r"[0-9]*\.[0-9]+|[0-9]+/[0-9]+", symbol.text):
        raise symbol.place.error(
            f"{symbol.text} without brackets; expected [{symbol.text}], or '{symbol.text}' in quotes for a terminal"
        )


def read_grammar(lines: Sequence[str], path: Path) -> Draft:
    """Read a grammar.

    Raises:
        DataError: a line is not a rule; the message names the place.
    """
    reader = _Reader(path)
    for line in lines_of(SYNTAX.tokens(lines, path)):
        reader.read(line)
    return reader.draft()


def grammar_text(grammar: Grammar) -> str:
    """Return the text of a file from which the grammar is read as equal.

    Raises:
        ValueError: no file has such a grammar: for instance weights of a nonterminal do not sum to 1, or a symbol has
            both kinds of quotes.
    """
    lefts = [left for left, _ in groupby(grammar.rules, key=lambda each: each.left)]
    used = dict.fromkeys(symbol for each in grammar.rules for symbol in each.right if symbol not in grammar.rules_of)
    lines = [] if lefts[0] == grammar.start else [f"%start {grammar.start}"]
    if tuple(used) != grammar.alphabet:
        lines.append(" ".join(["%alphabet", *map(_quoted, grammar.alphabet)]))
    if not has_expected_length(grammar):
        lines.append("%inconsistent")
    for left, rules in groupby(grammar.rules, key=lambda each: each.left):
        lines.append(f"{left} -> {' | '.join(_alternatives(rules, grammar))}")
    try:
        if read_grammar(lines, Path("grammar")).grammar() == grammar:
            return "".join(line + "\n" for line in lines)
    except DataError as error:
        raise ValueError(f"the grammar cannot be written as a file: {error}") from None
    raise ValueError("the grammar cannot be written as a file: a symbol would be read as another")


def _alternatives(rules: Iterator[Rule], grammar: Grammar) -> Iterator[str]:
    for _, right, weight in rules:
        symbols = [symbol if symbol in grammar.rules_of else _quoted(symbol) for symbol in right]
        yield " ".join([*(symbols or [EMPTY]), f"[{weight}]"])


def _quoted(symbol: str) -> str:
    return f'"{symbol}"' if "'" in symbol else f"'{symbol}'"
