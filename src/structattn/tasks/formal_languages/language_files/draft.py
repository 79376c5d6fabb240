"""A grammar as it is read from a file, and its checks, whose errors name places."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from structattn.support.errors import DataError
from structattn.support.grouping import grouped
from structattn.tasks.formal_languages.expected_length import fastest_growth, has_expected_length
from structattn.tasks.formal_languages.grammar import ROOT, Grammar, Rule, children_alone, deriving, exact, reachable
from structattn.tasks.formal_languages.language_files.tokens import Place
from structattn.text.tokenization.vocabulary import CONTROL_SYMBOLS, UNKNOWN_SYMBOL

MAX_NONTERMINALS, MAX_TERMINALS, MAX_SIZE, MAX_RIGHT = 1000, 1000, 20_000, 100
RESERVED = {*CONTROL_SYMBOLS, UNKNOWN_SYMBOL, ROOT}


class DraftRule(NamedTuple):
    """``left -> right`` with its weight; None: an equal share of what is left of 1."""

    left: str
    right: tuple[str, ...]
    weight: Fraction | None
    place: Place


@dataclass(frozen=True)
class Draft:
    """What a file says.

    Args:
        terminals: the terminals in the order of their ids, with the place of each.
        consistent: whether derivations must have an expected length, and so end with probability 1.
        shown: what messages call a nonterminal.
    """

    path: Path
    start: str
    terminals: Mapping[str, Place]
    rules: tuple[DraftRule, ...]
    consistent: bool = True
    shown: Callable[[str], str] = str

    def grammar(self) -> Grammar:
        """Return the grammar, whose probabilities can be computed.

        Raises:
            DataError: it is too large, weights of a symbol do not sum to 1, derivations do not end, a symbol is of no
                use, or derivations can repeat a cycle; the message names the place.
        """
        self._check_sizes()
        self._check_symbols()
        self._check_use()
        grammar = Grammar(self.start, tuple(self.terminals), tuple(self._weighted_rules()))
        self._check_cycles(grammar)
        if self.consistent:
            self._check_expected_length(grammar)
        return grammar

    @property
    def _places(self) -> dict[str, Place]:
        """Nonterminal -> the place of its first rule."""
        places: dict[str, Place] = {}
        for each in self.rules:
            places.setdefault(each.left, each.place)
        return places

    def _check_sizes(self) -> None:
        for each in self.rules:
            if len(each.right) > MAX_RIGHT:
                raise each.place.error(f"the rule has {len(each.right)} symbols; expected at most {MAX_RIGHT}")
        counts = {
            "nonterminals": (len({each.left for each in self.rules}), MAX_NONTERMINALS),
            "terminals": (len(self.terminals), MAX_TERMINALS),
            "symbols in all rules": (sum(1 + len(each.right) for each in self.rules), MAX_SIZE),
        }
        for what, (count, limit) in counts.items():
            if count > limit:
                raise DataError(self.path, f"has {count} {what}; expected at most {limit}")

    def _check_symbols(self) -> None:
        places = self._places
        for symbol, place in (*self.terminals.items(), *places.items()):
            if symbol in RESERVED:
                raise place.error(f"the symbol {symbol!r} is reserved; expected another name")
        words = any(len(symbol) > 1 for symbol in self.terminals)
        for symbol, place in self.terminals.items():
            if symbol in places:
                line = places[symbol].line
                raise place.error(f"{symbol!r} is a terminal here, and has rules in line {line}; expected two names")
            if words and not {" ", "\t"}.isdisjoint(symbol):
                reason = "has a space, which separates symbols of more than one character; expected a word"
                raise place.error(f"the symbol {symbol!r} {reason}")

    def _check_use(self) -> None:
        plain = [Rule(each.left, each.right, Fraction(1)) for each in self.rules]
        productive = deriving(plain, self.terminals)
        used = {each.left for each in reachable(self.start, plain)}
        for symbol, place in self._places.items():
            if symbol not in productive:
                raise place.error(f"{self.shown(symbol)} derives no string: each rule leads to others without end")
            if symbol not in used:
                reason = f"does not occur in any derivation from the start symbol {self.shown(self.start)}"
                raise place.error(f"{self.shown(symbol)} {reason}")
        if not any(symbol in self.terminals for each in plain for symbol in each.right):
            raise self._places[self.start].error("the only string is empty; expected a terminal")

    def _weighted_rules(self) -> Iterable[Rule]:
        groups = grouped(self.rules, lambda each: each.left)
        for group in groups.values():
            _check_distinct(group, self.shown)
        shares = {left: _share_of_rest(group, self.shown) for left, group in groups.items()}
        return (Rule(left, right, shares[left] if weight is None else weight) for left, right, weight, _ in self.rules)

    def _check_cycles(self, grammar: Grammar) -> None:
        try:
            TopologicalSorter(children_alone(grammar)).prepare()
        except CycleError as error:
            cycle = error.args[1][::-1]  # each derives the next
            reason = f"{' -> '.join(map(self.shown, cycle))} is a cycle that adds no symbol"
            around = "" if _is_unary_cycle(cycle, grammar) else ", as the symbols around it can be empty"
            raise self._places[cycle[0]].error(f"{reason}{around}; expected a finite number of derivations") from None

    def _check_expected_length(self, grammar: Grammar) -> None:
        if not has_expected_length(grammar):
            symbols, rate = fastest_growth(grammar)
            names = [self.shown(each) for each in symbols]
            shown = " and ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others"
            reason = (
                f"{shown}: a step of a derivation replaces one by {rate:.4g} on average, so strings have no expected"
            )
            expected = "expected less than 1, by more weight for rules that end, or %inconsistent in a line of its own"
            raise self._places[symbols[0]].error(f"{reason} length; {expected}")


def _check_distinct(group: list[DraftRule], shown: Callable[[str], str]) -> None:
    seen: dict[tuple[str, ...], Place] = {}
    for left, right, _, place in group:
        if right in seen:
            line = seen[right].line
            raise place.error(f"{shown(left)} has the same alternative already in line {line}; expected it once")
        seen[right] = place


def _share_of_rest(group: list[DraftRule], shown: Callable[[str], str]) -> Fraction:
    """Return the weight of each rule of a nonterminal that has none: an equal share of what the others leave of 1."""
    total, without = Fraction(0), sum(each.weight is None for each in group)
    for each in group:
        try:
            total = exact(total + (each.weight or 0))
        except ValueError as error:
            raise each.place.error(str(error)) from None
    if total < 1 if without else total == 1:
        return (1 - total) / max(without, 1)
    expected = "less than 1, for rules without a weight" if without else "1"
    raise group[0].place.error(f"the weights of {shown(group[0].left)} sum to {_number(total)}; expected {expected}")


def _number(value: Fraction) -> str:
    decimal = f"{float(value):g}"
    return decimal if Fraction(decimal) == value else str(value)[:100]


def _is_unary_cycle(cycle: list[str], grammar: Grammar) -> bool:
    return all(any(each.right == (child,) for each in grammar.rules_of[parent]) for parent, child in pairwise(cycle))
