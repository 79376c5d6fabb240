"""The seven regular languages of FLaRe, as automata: their actions in each state fix how strings are drawn."""

import math
from bisect import bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.tasks.recognition.language import FlareLanguage, NextSymbols, Shape, String

_FIRST_TABLE = 64  # lengths; tables grow by doubling


@dataclass(frozen=True, eq=False)
class Automaton:
    """A deterministic automaton without dead states; a missing transition rejects.

    Args:
        transitions: symbol -> state, for each state; state 0 is the start.
        accepting: the states in which a string may end.
    """

    transitions: tuple[Mapping[int, int], ...]
    accepting: frozenset[int]

    def accepts(self, string: String) -> bool:
        """Return whether a string is a member."""
        state = 0
        for symbol in string:
            if symbol not in self.transitions[state]:
                return False
            state = self.transitions[state][symbol]
        return state in self.accepting

    def next_symbols(self, string: String) -> NextSymbols:
        """Return the symbols that may follow each prefix of a member."""
        end, state, found = self.num_symbols, 0, []
        for symbol in (*string, None):
            found.append(frozenset(self.transitions[state]) | ({end} if state in self.accepting else set()))
            state = state if symbol is None else self.transitions[state][symbol]
        return found

    @property
    def num_symbols(self) -> int:
        """The number of symbols that occur in transitions."""
        return 1 + max(symbol for each in self.transitions for symbol in each)

    @property
    def actions(self) -> list[int]:
        """The number of transitions of each state, and one more if it is accepting."""
        return [len(each) + (state in self.accepting) for state, each in enumerate(self.transitions)]

    def has_length(self, length: int) -> bool:
        """Return whether members have a length."""
        return bool(_tables(self, _table_size(length)).log_weights[length, 0] > -np.inf)

    def sample(self, length: int, generator: Generator) -> String:
        """Draw a member w of a length: P(w | length) is proportional to Π 1 / actions over the states on its path."""
        choices, state, string = _tables(self, _table_size(length)).choices, 0, []
        for left, point in zip(range(length, 0, -1), generator.random(length).tolist(), strict=True):
            symbols, targets, cumulative = choices[left][state]
            chosen = min(bisect_right(cumulative, point), len(symbols) - 1)
            string.append(symbols[chosen])
            state = targets[chosen]
        return tuple(string)

    def log_conditional(self, string: String) -> float:
        """Return log P(w | length) of a member, in nats, as ``sample`` draws it."""
        actions, state, log_weight = self.actions, 0, 0.0
        for symbol in string:
            log_weight -= math.log(actions[state])
            state = self.transitions[state][symbol]
        log_weight -= math.log(actions[state])
        return log_weight - float(_tables(self, _table_size(len(string))).log_weights[len(string), 0])


class _Choice(NamedTuple):
    symbols: list[int]
    targets: list[int]
    cumulative: list[float]


@dataclass(frozen=True, eq=False)
class _Tables:
    """Backward weights: log Σ Π 1 / actions over the paths with k symbols left, (lengths, states), and choices."""

    log_weights: NDArray[np.float64]
    choices: list[list[_Choice]]


def _table_size(length: int) -> int:
    size = _FIRST_TABLE
    while size < length:
        size *= 2
    return size


@lru_cache(maxsize=64)
def _tables(automaton: Automaton, size: int) -> _Tables:
    """Compute tables for up to ``size`` symbols. Cost: O((states + transitions) size)."""
    log_actions = np.log(automaton.actions)
    ends = np.array([state in automaton.accepting for state in range(len(log_actions))])
    log_weights = np.full((size + 1, len(log_actions)), -np.inf)
    log_weights[0, ends] = -log_actions[ends]
    choices: list[list[_Choice]] = [[]]
    for left in range(1, size + 1):
        choices.append([])
        for state, transitions in enumerate(automaton.transitions):
            paths = log_weights[left - 1, [*transitions.values()]]
            total = np.logaddexp.reduce(paths, initial=-np.inf)
            shares = np.exp(paths - total) if total > -np.inf else np.zeros(len(paths))
            possible = np.flatnonzero(shares)
            symbols, targets = ([*each] for each in (transitions, transitions.values()))
            chosen = [symbols[index] for index in possible], [targets[index] for index in possible]
            choices[left].append(_Choice(*chosen, np.cumsum(shares[possible]).tolist()))
            log_weights[left, state] = total - log_actions[state]
    return _Tables(log_weights, choices)


MODULUS, MAX_DEPTH = 5, 3
BITS = ("0", "1")
_MOVES, _DIGITS = 3, 5  # cycle navigation: > < =, then the digits
PLUS, MINUS, TIMES, EQUALS, ZERO = range(5)  # modular arithmetic: the digits follow the operators

Table = Mapping[Hashable, Mapping[int, Hashable]]


def automaton(table: Table, accepting: set[Hashable]) -> Automaton:
    """Return an automaton whose states have names; the first one is the start."""
    number = {state: index for index, state in enumerate(table)}
    transitions = tuple({symbol: number[target] for symbol, target in each.items()} for each in table.values())
    return Automaton(transitions, frozenset(number[state] for state in accepting))


def even_pairs() -> Automaton:
    """Return the automaton of strings whose first symbol is the last; the state is (first, last)."""
    table: dict[Hashable, dict[int, Hashable]] = {"start": {0: (0, 0), 1: (1, 1)}}
    for first, last in product((0, 1), repeat=2):
        table[first, last] = {0: (first, 0), 1: (first, 1)}
    return automaton(table, {"start", (0, 0), (1, 1)})


def repeat_01() -> Automaton:
    """Return the automaton of (01)*."""
    return automaton({"start": {0: "middle"}, "middle": {1: "start"}}, {"start"})


def parity() -> Automaton:
    """Return the automaton of an odd number of ones."""
    return automaton({"even": {0: "even", 1: "odd"}, "odd": {0: "odd", 1: "even"}}, {"odd"})


def cycle_navigation() -> Automaton:
    """Return the automaton of moves on a cycle of five, followed by the position that they lead to."""
    table: dict[Hashable, dict[int, Hashable]] = {
        place: {0: (place + 1) % 5, 1: (place - 1) % 5, 2: place, _MOVES + place: "end"} for place in range(MODULUS)
    }
    return automaton(table | {"end": {}}, {"end"})


def modular_arithmetic() -> Automaton:
    """Return the automaton of expressions without precedence, read from left to right, with their value mod 5."""
    digits = range(MODULUS)
    table: dict[Hashable, dict[int, Hashable]] = {"start": {ZERO + digit: digit for digit in digits}}
    for value in digits:
        table[value] = {sign: (value, sign) for sign in (PLUS, MINUS, TIMES, EQUALS)}
    for value in digits:
        results = {PLUS: value.__add__, MINUS: value.__sub__, TIMES: value.__mul__}
        table |= {
            (value, sign): {ZERO + digit: result(digit) % MODULUS for digit in digits}
            for sign, result in results.items()
        }
        table[value, EQUALS] = {ZERO + value: "end"}
    return automaton(table | {"end": {}}, {"end"})


def dyck_2_3() -> Automaton:
    """Return the automaton of balanced strings of two kinds of brackets, at most three deep; the state is the stack."""
    table: dict[Hashable, dict[int, Hashable]] = {}
    pending: list[tuple[int, ...]] = [()]
    for stack in pending:
        opened = {2 * kind: (*stack, kind) for kind in (0, 1) if len(stack) < MAX_DEPTH}
        pending += opened.values()
        table[stack] = {**opened, **({2 * stack[-1] + 1: stack[:-1]} if stack else {})}
    return automaton(table, {()})


def first() -> Automaton:
    """Return the automaton of strings that begin with 1."""
    return automaton({"start": {1: "rest"}, "rest": {0: "rest", 1: "rest"}}, {"rest"})


def _repeats(string: String) -> bool:
    return len(string) % 2 == 0 and (not string or (string[0], string[-1]) == (0, 1))


def _moves_and_digit(string: String) -> bool:
    return bool(string) and max(string[:-1], default=0) < _MOVES <= string[-1]


def _expression(string: String) -> bool:
    digits, signs = string[::2], string[1::2]
    right = len(string) >= 3 and len(string) % 2 == 1 and min(digits) >= ZERO
    return right and signs[-1] == EQUALS and max(signs[:-1], default=PLUS) < EQUALS


def as_many_opens(string: String) -> bool:
    """Return whether as many brackets open as close; those that open have even indices."""
    return 2 * sum(symbol % 2 for symbol in string) == len(string)


def _language(
    name: str, description: str, symbols: str, own: Automaton, classes: tuple[int, ...], shape: Shape | None = None
) -> FlareLanguage:
    functions = own.has_length, own.sample, own.accepts, own.next_symbols
    return FlareLanguage(
        name, description, tuple(symbols.split()), *functions, classes, shape, log_conditional=own.log_conditional
    )


REGULAR = (
    _language("even-pairs", "the first symbol is the last", "0 1", even_pairs(), (0, 0)),
    _language("repeat-01", "01 repeated", "0 1", repeat_01(), (0, 0), _repeats),
    _language("parity", "an odd number of ones", "0 1", parity(), (0, 0)),
    _language(
        "cycle-navigation",
        "moves on a cycle of five, and where they end",
        "> < = 0 1 2 3 4",
        cycle_navigation(),
        (0,) * _MOVES + (1,) * _DIGITS,
        _moves_and_digit,
    ),
    _language(
        "modular-arithmetic-simple",
        "arithmetic without precedence, and its value mod 5",
        "+ - * = 0 1 2 3 4",
        modular_arithmetic(),
        (0, 0, 0, 1) + (2,) * MODULUS,
        _expression,
    ),
    _language(
        "dyck-2-3",
        "balanced, two kinds of brackets, at most three deep",
        "(0 )0 (1 )1",
        dyck_2_3(),
        (0, 1, 0, 1),
        as_many_opens,
    ),
    _language("first", "begins with 1", "0 1", first(), (0, 0)),
)
