"""Finite automata: members, and strings drawn as FLaRe draws those of its regular languages."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.tasks.recognition.language import NextSymbols, String

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
