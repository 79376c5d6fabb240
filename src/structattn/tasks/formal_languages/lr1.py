"""Whether a grammar is LR(1): then its language is deterministic, and each string has one derivation (Knuth 1965)."""

from collections.abc import Iterable, Sequence

from structattn.support.grouping import grouped
from structattn.tasks.formal_languages.grammar import Grammar, deriving

END = ""
MAX_ITEMS = 20_000
Item = tuple[int, int, str]  # rule, number of its symbols that were read, the symbol that follows the rule


def is_lr1(grammar: Grammar) -> bool | None:
    """Return whether a symbol of lookahead determines each step of a parser that reads from the left.

    Cost: that of the canonical automaton; None, for undecided, if its states have more than ``MAX_ITEMS`` items.
    """
    automaton = _Automaton(grammar)
    start = frozenset([(len(grammar.rules), 0, END)])
    seen, pending, count = {start}, [start], 0
    while pending:
        items = automaton.closure(pending.pop())
        count += len(items)
        if count > MAX_ITEMS:
            return None
        if automaton.has_conflict(items):
            return False
        new = automaton.successors(items) - seen
        seen |= new
        pending += new
    return True


class _Automaton:
    """The canonical LR(1) automaton: states are sets of items."""

    def __init__(self, grammar: Grammar) -> None:
        self._rights = [*(each.right for each in grammar.rules), (grammar.start,)]
        self._rules_of = grouped(range(len(grammar.rules)), lambda index: grammar.rules[index].left)
        self._empty = deriving(grammar.rules)
        self._first: dict[str, set[str]] = {left: set() for left in self._rules_of}
        grown = True
        while grown:
            grown = False
            for left, right, _ in grammar.rules:
                new = self._firsts(right, END) - {END} - self._first[left]
                self._first[left] |= new
                grown |= bool(new)

    def _firsts(self, symbols: Sequence[str], after: str) -> set[str]:
        """Return the symbols that can be first in what ``symbols`` and then ``after`` derive."""
        found = set[str]()
        for symbol in symbols:
            found |= self._first.get(symbol, {symbol})
            if symbol not in self._empty:
                return found
        return found | {after}

    def closure(self, kernel: Iterable[Item]) -> set[Item]:
        """Add the items of the rules of each symbol that can be next."""
        items, pending = set(kernel), list(kernel)
        while pending and len(items) <= MAX_ITEMS:
            rule, done, after = pending.pop()
            symbol, *rest = self._rights[rule][done:] or (END,)
            rules = self._rules_of.get(symbol, ())
            new = {
                (each, 0, follows) for follows in (self._firsts(rest, after) if rules else ()) for each in rules
            } - items
            items |= new
            pending += new
        return items

    def has_conflict(self, items: Iterable[Item]) -> bool:
        """Return whether two of the items ask for different steps at the same next symbol."""
        steps: dict[str, int | None] = {}  # next symbol -> the rule that ends, or None to read on
        for rule, done, after in items:
            ends = done == len(self._rights[rule])
            symbol, step = (after, rule) if ends else (self._rights[rule][done], None)
            if steps.setdefault(symbol, step) != step:
                return True
        return False

    def successors(self, items: Iterable[Item]) -> set[frozenset[Item]]:
        """Return the states after each symbol that can be read."""
        after: dict[str, set[Item]] = {}
        for rule, done, follows in items:
            if done < len(self._rights[rule]):
                after.setdefault(self._rights[rule][done], set()).add((rule, done + 1, follows))
        return set(map(frozenset, after.values()))
