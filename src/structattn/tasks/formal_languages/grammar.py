"""Probabilistic context-free grammars with exact weights."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple


class Rule(NamedTuple):
    """``left -> right`` with its weight; an empty ``right`` derives the empty string."""

    left: str
    right: tuple[str, ...]
    weight: Fraction


def rule(left: str, right: str, weight: Fraction | int) -> Rule:
    """Create a rule from a right-hand side with spaces between its symbols; "" is the empty string."""
    return Rule(left, tuple(right.split()), Fraction(weight))


@dataclass(frozen=True)
class Grammar:
    """A weighted context-free grammar.

    Nonterminals are the left-hand sides. Weights are exact fractions, so that transformed grammars can be compared
    for equality; they need not sum to 1 per left-hand side (see ``normalized``).

    Args:
        start: the start symbol.
        alphabet: the terminals, in the order of their indices.
        rules: the weighted rules.

    Raises:
        ValueError: a symbol is neither a terminal nor has rules, or is both; or a weight is not positive.
    """

    start: str
    alphabet: tuple[str, ...]
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        if self.start not in self.rules_of:
            raise ValueError(f"the start symbol {self.start!r} has no rules")
        known = {*self.alphabet, *self.rules_of}
        for left, right, weight in self.rules:
            if left in self.alphabet:
                raise ValueError(f"{left!r} is a terminal and has rules")
            if not known.issuperset(right):
                raise ValueError(f"{left} -> {' '.join(right)}: a symbol is neither a terminal nor has rules")
            if weight <= 0:
                raise ValueError(f"{left} -> {' '.join(right)}: weight {weight}; expected more than 0")

    @cached_property
    def rules_of(self) -> Mapping[str, tuple[Rule, ...]]:
        """The rules of each nonterminal, both in order of first appearance."""
        groups: dict[str, list[Rule]] = {}
        for each in self.rules:
            groups.setdefault(each.left, []).append(each)
        return MappingProxyType({left: tuple(group) for left, group in groups.items()})


def normalized(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Divide the weights so that those of each left-hand side sum to 1."""
    rules = tuple(rules)
    totals: dict[str, Fraction] = {}
    for left, _, weight in rules:
        totals[left] = totals.get(left, Fraction(0)) + weight
    return tuple(Rule(left, right, weight / totals[left]) for left, right, weight in rules)


def merge(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Merge equal rules into one with the sum of their weights; drop rules of weight 0."""
    weights: dict[tuple[str, tuple[str, ...]], Fraction] = {}
    for left, right, weight in rules:
        weights[left, right] = weights.get((left, right), Fraction(0)) + weight
    return tuple(Rule(left, right, weight) for (left, right), weight in weights.items() if weight)


def reachable(start: str, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Keep the rules whose left-hand side occurs in a derivation from ``start``."""
    rules = tuple(rules)
    found, grown = {start}, True
    while grown:
        size = len(found)
        found.update(symbol for left, right, _ in rules if left in found for symbol in right)
        grown = len(found) > size
    return tuple(each for each in rules if each.left in found)
