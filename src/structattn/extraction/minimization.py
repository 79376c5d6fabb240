"""Smaller automata and grammars of the same language, up to a length."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from structattn.extraction.automaton import BOTTOM, PushdownAutomaton
from structattn.extraction.comparison import compare, prefix_pairs
from structattn.extraction.configurations import Simulator
from structattn.extraction.to_grammar import TooManyRulesError, grammar_of, unused_name
from structattn.support.grouping import grouped
from structattn.tasks.formal_languages.grammar import EmptyLanguageError, Grammar, Rule, pruned
from structattn.tasks.formal_languages.language_files.grammar_file import grammar_text
from structattn.tasks.formal_languages.next_symbols import END

LENGTH = 8
MARGIN = 4
"""Symbols by which the prefixes that are compared are longer than the shortest string, at least."""
MAX_PREFIXES = 1_500


@dataclass(frozen=True)
class Minimal:
    """An automaton, and the grammar of its language.

    Args:
        automaton: in which no two controls, and no two items above the bottom, can be made one, or the
            unmerged one.
        grammar: the same, simplified.
        max_length: the length of prefixes up to which merges were found not to change the language; 0 without merges.
    """

    automaton: PushdownAutomaton
    grammar: Grammar
    max_length: int

    @property
    def text(self) -> str | None:
        """Of a file of the grammar; None if no file can have it, for its size or its symbols."""
        return self._written[0]

    @property
    def without_text(self) -> str:
        """The sentence in place of a grammar without text."""
        return self._written[1]

    @cached_property
    def _written(self) -> tuple[str | None, str]:
        try:
            return grammar_text(self.grammar), ""
        except ValueError as error:
            return None, f"With {len(self.grammar.rules):,} rules, {error}."


def minimized(automaton: PushdownAutomaton, length: int = LENGTH) -> Minimal:
    """Merge controls, then items, not the bottom, greedily, while the same symbols can follow all short prefixes.

    A merge only adds strings, so that two controls that cannot be made one cannot be after other merges either: each
    pair is tried once. A merge may add strings beyond that length: compare the result, not the automaton that it is of.

    Args:
        automaton: the automaton.
        length: of the prefixes; longer ones are compared where the shortest string has more than ``length - MARGIN``
            symbols, and only shorter ones where there are more than ``MAX_PREFIXES`` that are not continued alike.

    Raises:
        EmptyLanguageError: it accepts no string.
        TooManyRulesError: its grammar would be too large.
    """
    automaton = useful(automaton)
    whole = Simulator(automaton)
    reached = _compared_length(whole, automaton.alphabet, length)

    def same(candidate: PushdownAutomaton) -> bool:
        try:
            other = Simulator(candidate)
            found = compare(other, whole, automaton.alphabet, reached, 4 * MAX_PREFIXES, stops=True)
            return found.is_equal and found.max_length == reached
        except (EmptyLanguageError, TooManyRulesError):
            return False

    kinds: tuple[Literal["controls", "items"], ...] = ("controls", "items")
    for what in kinds:
        for group in _alike(automaton, what):
            if same(candidate := _merged(automaton, group, what)):
                automaton = candidate
        kept = list[int]()
        for each in _mergeable(getattr(automaton, what), what):
            merges = (automaton.merged(other, each, what) for other in kept)
            smaller = next((candidate for candidate in merges if same(candidate)), None)
            if smaller is None:
                kept.append(each)
            else:
                automaton = smaller
    return unmerged(automaton, reached)


def unmerged(automaton: PushdownAutomaton, max_length: int = 0) -> Minimal:
    """Return the useful part of an automaton and its grammar, without merges.

    Raises:
        EmptyLanguageError: it accepts no string.
        TooManyRulesError: its grammar would be too large.
    """
    automaton = useful(automaton)
    return Minimal(automaton.numbered(), simplified(grammar_of(automaton)), max_length)


def _compared_length(whole: Simulator, alphabet: Sequence[str], length: int) -> int:
    """Return the length up to which prefixes are compared."""
    reached, ends = 0, False
    for layer in prefix_pairs(whole, whole, alphabet, sys.maxsize, MAX_PREFIXES, joins=True):
        if not layer:
            return max(reached, length)  # all strings are shorter
        reached = len(layer[0].string)
        if not ends and any(END in each.sides[0] for each in layer if each.sides[0]):
            ends, length = True, max(length, reached + MARGIN)
        if ends and reached >= length:
            break
    return reached


def _mergeable(values: Iterable[int], what: Literal["controls", "items"]) -> list[int]:
    """Return all controls, and all items but the bottom, which is neither pushed nor popped."""
    return [each for each in values if what == "controls" or each != BOTTOM]


def _merged(
    automaton: PushdownAutomaton, group: Sequence[int], what: Literal["controls", "items"]
) -> PushdownAutomaton:
    for each in group[1:]:
        automaton = automaton.merged(group[0], each, what)
    return automaton


def _alike(automaton: PushdownAutomaton, what: Literal["controls", "items"]) -> list[list[int]]:
    """Return the controls that the same symbols lead to, or the items that the same symbols push or put on top.

    They are tried together before pairs, as automata with many choices are slow to follow.
    """
    symbols: dict[int, set[str]] = {}
    for each in automaton.transitions:
        value = each.target if what == "controls" else each.item
        if value is not None:
            symbols.setdefault(value, set()).add(each.symbol)
    groups = grouped(_mergeable(symbols, what), lambda value: frozenset(symbols[value]))
    return [group for group in groups.values() if len(group) > 1]


def useful(automaton: PushdownAutomaton) -> PushdownAutomaton:
    """Return the automaton without the transitions and finals that no control that is reached leads to.

    Control and top are followed as if any item could lie below the top, so that some unused ones may be left.
    """
    reached = {(each.control, item) for each in automaton.starts for item in each.stack[-1:]}
    below = {item for each in automaton.starts for item in each.stack} | {
        each.top for each in automaton.transitions if each.action == "push"
    }
    pending = list(reached)
    while pending:
        control, top = pending.pop()
        for each in automaton.transitions:
            if (each.source, each.top) == (control, top):
                tops = below if each.item is None else {each.item}
                new = {(each.target, item) for item in tops} - reached
                reached |= new
                pending += new
    kept = {each: count for each, count in automaton.transitions.items() if (each.source, each.top) in reached}
    finals = frozenset(each for each in automaton.finals if each in reached)
    return PushdownAutomaton(automaton.alphabet, automaton.starts, kept, finals)


def simplified(grammar: Grammar) -> Grammar:
    """Make equal nonterminals one, write single rules where they are used, and rename the rest S, A, B, C, ..."""
    while True:
        rules = _inlined(grammar.start, _without_equal(grammar))
        starts = [each.right for each in rules if each.left == grammar.start]
        only = starts[0][0] if len(starts) == 1 and len(starts[0]) == 1 else grammar.start
        start = grammar.start if only in grammar.alphabet else only
        smaller = pruned(start, grammar.alphabet, rules)
        if smaller.rules == grammar.rules:
            return _renamed(smaller)
        grammar = smaller


def _without_equal(grammar: Grammar) -> list[Rule]:
    """Make nonterminals one that have the same rules, given that those in them are the same: the coarsest partition."""
    classes: dict[str, int] = dict.fromkeys(grammar.rules_of, 0)
    while True:
        signatures = {
            left: (classes[left], frozenset(tuple(classes.get(x, x) for x in each.right) for each in rules))
            for left, rules in grammar.rules_of.items()
        }
        numbers = {signature: index for index, signature in enumerate(dict.fromkeys(signatures.values()))}
        refined = {left: numbers[signature] for left, signature in signatures.items()}
        if len(numbers) == len(set(classes.values())):
            break
        classes = refined
    representatives: dict[int, str] = {}
    for left, number in refined.items():
        representatives.setdefault(number, left)
    representatives[refined[grammar.start]] = grammar.start
    name = {left: representatives[number] for left, number in refined.items()}
    rules = (Rule(name[left], tuple(name.get(x, x) for x in right), weight) for left, right, weight in grammar.rules)
    return list({(each.left, each.right): each for each in rules}.values())


def _inlined(start: str, rules: list[Rule]) -> list[Rule]:
    """Replace each nonterminal with a single rule, which does not use it, by the right-hand side of that rule."""
    for left, (first, *others) in grouped(rules, lambda each: each.left).items():
        if left == start or others or left in first.right:
            continue
        right = next(each.right for each in rules if each.left == left)
        rules = [
            each._replace(right=tuple(x for symbol in each.right for x in (right if symbol == left else (symbol,))))
            for each in rules
            if each.left != left
        ]
    return list({(each.left, each.right): each for each in rules}.values())


def _renamed(grammar: Grammar) -> Grammar:
    order = [grammar.start]
    for left in order:
        order += dict.fromkeys(
            x for each in grammar.rules_of[left] for x in each.right if x in grammar.rules_of and x not in order
        )
    names = _names(grammar.alphabet)
    name: Mapping[str, str] = {left: next(names) for left in order}
    rules = sorted(grammar.rules, key=lambda each: (order.index(each.left), len(each.right) > 0, len(each.right)))
    return Grammar(
        name[grammar.start],
        grammar.alphabet,
        tuple(Rule(name[left], tuple(name.get(x, x) for x in right), weight) for left, right, weight in rules),
    )


def _names(taken: tuple[str, ...]) -> Iterator[str]:
    """Yield S, A, B, ..., R, T, ..., Z, A1, B1, ...: names of nonterminals that are no symbols."""
    letters = "SABCDEFGHIJKLMNOPQRTUVWXYZ"
    number = 0
    while True:
        for letter in letters if not number else sorted(letters):
            yield unused_name(f"{letter}{number or ''}", taken)
        number += 1
