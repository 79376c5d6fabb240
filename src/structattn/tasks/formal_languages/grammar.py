"""Probabilistic context-free grammars and their normal form."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import product
from types import MappingProxyType
from typing import NamedTuple, get_args

from structattn.settings.choices import Variant
from structattn.support.grouping import grouped


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
        alphabet: the terminals, in the order of their indices.

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
        groups = grouped(self.rules, lambda each: each.left)
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
    rules, found = tuple(rules), dict[str, set[str]]()
    for left, right, _ in rules:
        found.setdefault(left, set()).update(right)
    reached, pending = {start}, [start]
    while pending:
        new = found.get(pending.pop(), set()) - reached
        reached |= new
        pending += new
    return tuple(each for each in rules if each.left in reached)


def deriving(rules: Iterable[Rule], symbols: Iterable[str] = ()) -> set[str]:
    """Return the nonterminals that derive a string of some symbols alone; of no symbols, the empty string.

    Cost: linear in the size of the grammar.
    """
    waiting: dict[str, list[int]] = {}  # symbol -> the rules that have it on their right, once for each occurrence
    lefts, missing = [], []
    for index, (left, right, _) in enumerate(rules):
        lefts.append(left)
        missing.append(len(right))
        for symbol in right:
            waiting.setdefault(symbol, []).append(index)
    pending = [*symbols, *(left for left, count in zip(lefts, missing, strict=True) if not count)]
    known = set[str]()
    while pending:
        if (symbol := pending.pop()) in known:
            continue
        known.add(symbol)
        for index in waiting.get(symbol, ()):
            missing[index] -= 1
            if not missing[index]:
                pending.append(lefts[index])
    return known.intersection(lefts)


class EmptyLanguageError(ValueError):
    """A grammar derives no string, or an automaton accepts none."""


def pruned(start: str, alphabet: tuple[str, ...], rules: Iterable[Rule]) -> Grammar:
    """Return the grammar of the rules that derivations of strings use, with alternatives of equal weight.

    Raises:
        EmptyLanguageError: there is none.
    """
    rules = tuple(rules)
    known = deriving(rules, alphabet) | set(alphabet)
    kept = reachable(start, (each for each in rules if known.issuperset(each.right)))
    if not any(each.left == start for each in kept):
        raise EmptyLanguageError("the grammar derives no string")
    sizes = Counter(each.left for each in kept)
    return Grammar(start, alphabet, tuple(each._replace(weight=Fraction(1, sizes[each.left])) for each in kept))


def children_alone(grammar: Grammar) -> dict[str, set[str]]:
    """Return, for each nonterminal, those that a rule derives from it alone, all other symbols being empty.

    A cycle among them gives strings infinitely many derivations.
    """
    empty, children = deriving(grammar.rules), dict[str, set[str]]()
    for left, right, _ in grammar.rules:
        kept = [symbol for symbol in right if symbol not in empty]
        alone = set(kept) if len(kept) == 1 else set() if kept else set(right)
        children.setdefault(left, set()).update(alone.intersection(grammar.rules_of))
    return children


MAX_BITS = 4096
MAX_CHAINS = 20_000
MAX_SIZE = 40_000


def exact(value: Fraction) -> Fraction:
    """Return a weight that later ones are computed from.

    Raises:
        ValueError: its denominator has more than ``MAX_BITS`` bits, so that exact arithmetic would take long.
    """
    if value.denominator.bit_length() > MAX_BITS:
        raise ValueError(
            f"a weight is a fraction whose denominator has more than {MAX_BITS} bits; expected simpler weights"
        )
    return value


def rounded(value: Fraction) -> float:
    """Return a weight in double precision.

    Raises:
        ValueError: it is below the normal numbers of float64.
    """
    if (number := float(value)) < sys.float_info.min:
        raise ValueError(f"a product of weights is below {sys.float_info.min:.3g}; expected greater weights")
    return number


def _limited(rules: Iterable[Rule]) -> Iterator[Rule]:
    size = 0
    for each in rules:
        size += 1 + len(each.right)
        if size > MAX_SIZE:
            raise ValueError(f"the grammar without empty and unary rules has more than {MAX_SIZE} symbols in its rules")
        yield each


VARIANTS: tuple[str, ...] = get_args(Variant)


def with_variant(name: str, variant: str) -> str:
    """Return the name of a language for messages, with its variant unless that is the usual one."""
    return name if variant == "faithful" else f"{name} (variant {variant})"


ROOT = "<root>"


@dataclass(frozen=True)
class NormalForm:
    """A grammar without empty and unary rules, and the probability of the empty string, which it cannot derive."""

    grammar: Grammar
    empty: Fraction


def _bottom_up(edges: Mapping[str, set[str]], what: str) -> list[str]:
    try:
        return list(TopologicalSorter(edges).static_order())
    except CycleError as error:
        raise ValueError(f"{what} form a cycle: {' -> '.join(error.args[1])}; expected no cycle") from None


def empty_probabilities(grammar: Grammar) -> dict[str, Fraction]:
    """Return P(X derives the empty string) for each nonterminal where it is not 0.

    Raises:
        ValueError: nonterminals derive the empty string through each other in a cycle; the probability would be the
            root of a polynomial, not a fraction.
    """
    empty = deriving(grammar.rules)
    vanishing = {
        symbol: [each for each in grammar.rules_of[symbol] if empty.issuperset(each.right)]
        for symbol in grammar.rules_of
        if symbol in empty
    }
    edges = {symbol: {child for each in rules for child in each.right} for symbol, rules in vanishing.items()}
    probabilities: dict[str, Fraction] = {}
    for symbol in _bottom_up(edges, "empty rules"):
        total = sum((_product(each, probabilities) for each in vanishing[symbol]), Fraction(0))
        probabilities[symbol] = exact(total)
    return probabilities


def _product(each: Rule, factors: Mapping[str, Fraction]) -> Fraction:
    weight = each.weight
    for symbol in each.right:
        weight *= factors[symbol]
    return weight


def _with_symbols_dropped(each: Rule, empty: Mapping[str, Fraction]) -> Iterator[Rule]:
    shares = [((True, 1 - empty.get(symbol, 0)), (False, empty.get(symbol, 0))) for symbol in each.right]
    choices = [[choice for choice in pair if choice[1]] for pair in shares]
    for chosen in product(*choices):
        weight = each.weight / (1 - empty.get(each.left, 0))
        for _, share in chosen:
            weight *= share
        right = tuple(symbol for symbol, (kept, _) in zip(each.right, chosen, strict=True) if kept)
        if right:
            yield Rule(each.left, right, weight)


def without_empty_rules(grammar: Grammar, empty: Mapping[str, Fraction]) -> Grammar:
    """Return the grammar of P(string | not empty) for each nonterminal; weights stay normalized.

    Each occurrence of X in a right-hand side is dropped with probability e = P(X is empty) and kept with 1 - e; the
    weights of the rules of X are divided by 1 - e. A nonterminal that is always empty is removed.
    """
    kept = [each for each in grammar.rules if empty.get(each.left) != 1]
    rules = merge(_limited(new for each in kept for new in _with_symbols_dropped(each, empty)))
    return Grammar(grammar.start, grammar.alphabet, reachable(grammar.start, rules))


def _is_unary(each: Rule, grammar: Grammar) -> bool:
    return len(each.right) == 1 and each.right[0] in grammar.rules_of


def unary_closure(grammar: Grammar) -> dict[str, dict[str, Fraction]]:
    """Return closure[A][B], the weight of all chains A => ... => B of unary rules, including the empty chain.

    Raises:
        ValueError: unary rules form a cycle, or more than ``MAX_CHAINS`` chains.
    """
    unary = {left: [each for each in rules if _is_unary(each, grammar)] for left, rules in grammar.rules_of.items()}
    edges = {left: {each.right[0] for each in rules} for left, rules in unary.items()}
    closure, size = dict[str, dict[str, Fraction]](), 0
    for symbol in _bottom_up(edges, "unary rules"):
        closure[symbol] = {symbol: Fraction(1)}
        for _, (child,), weight in unary[symbol]:
            for last, share in closure[child].items():
                closure[symbol][last] = exact(closure[symbol].get(last, Fraction(0)) + weight * share)
        size += len(closure[symbol])
        if size > MAX_CHAINS:
            raise ValueError(f"there are more than {MAX_CHAINS} chains of unary rules")
    return closure


def _root_rules(grammar: Grammar, variant: Variant, inner: tuple[Rule, ...], mass: Fraction) -> list[Rule]:
    if variant == "faithful":
        return [Rule(ROOT, right, weight * mass) for left, right, weight in inner if left == grammar.start]
    own = [each for each in grammar.rules_of[grammar.start] if not _is_unary(each, grammar)]
    return [Rule(ROOT, right, weight) for _, right, weight in normalized(own)]


def normal_form(grammar: Grammar, variant: Variant) -> NormalForm:
    """Convert a grammar to an equivalent one without empty and unary rules.

    Args:
        grammar: a grammar whose weights sum to 1 per left-hand side.
        variant: ``faithful``: P(string) is that of ``grammar``. ``reference``: P(string | the root uses no removed
            rule), by the weights of the rules: an empty or unary root, and the empty string, are lost.

    Raises:
        ValueError: empty or unary rules form a cycle; or the result has more than ``MAX_SIZE`` symbols, counting both
            sides of rules, or weights of more than ``MAX_BITS`` bits.
    """
    empty = empty_probabilities(grammar)
    nonempty = without_empty_rules(grammar, empty)
    closure = unary_closure(nonempty)
    inner = merge(
        _limited(
            Rule(left, right, share * weight)
            for left, chains in closure.items()
            for last, share in chains.items()
            for _, right, weight in (each for each in nonempty.rules_of[last] if not _is_unary(each, nonempty))
        )
    )
    start_empty = empty.get(grammar.start, Fraction(0))
    rules = (*_root_rules(nonempty, variant, inner, 1 - start_empty), *inner)
    normal = Grammar(ROOT, grammar.alphabet, reachable(ROOT, rules))
    return NormalForm(normal, start_empty if variant == "faithful" else Fraction(0))
