"""Which symbols can follow each prefix of a string of a context-free grammar, by Earley's algorithm (1970)."""

from collections.abc import Sequence
from typing import NamedTuple

from structattn.tasks.formal_languages.grammar import Grammar, Rule, deriving


class _Item(NamedTuple):
    """A rule, the number of its symbols that have been found, and the position where the first of them begins."""

    rule: Rule
    found: int
    origin: int

    @property
    def next(self) -> str | None:
        """The symbol that is expected; None at the end of the rule."""
        return self.rule.right[self.found] if self.found < len(self.rule.right) else None

    def advanced(self) -> "_Item":
        """Return the item after one more symbol."""
        return _Item(self.rule, self.found + 1, self.origin)


class PrefixParser:
    """The symbols that may follow each prefix of strings of a grammar.

    Args:
        grammar: its rules whose symbols derive no string are left out, so that every prefix that is parsed is that of
            a member (the viable-prefix property).
    """

    def __init__(self, grammar: Grammar) -> None:
        useful = deriving(grammar.rules, grammar.alphabet) | {*grammar.alphabet}
        self._start, self._alphabet = grammar.start, grammar.alphabet
        self._nullable = deriving(grammar.rules)
        self._rules: dict[str, list[Rule]] = {}
        for each in grammar.rules:
            if useful.issuperset(each.right):
                self._rules.setdefault(each.left, []).append(each)

    def next_symbols(self, string: Sequence[int]) -> list[frozenset[int]]:
        """Return a set of indices into the alphabet for each prefix of a member; its size stands for the end.

        Cost: O(T^3) for a string of length T, O(T^2) for an unambiguous grammar.

        Raises:
            ValueError: the string is no prefix of a member.
        """
        index_of = {symbol: index for index, symbol in enumerate(self._alphabet)}
        columns: list[dict[str | None, list[_Item]]] = []
        kernel = [_Item(each, 0, 0) for each in self._rules.get(self._start, ())]
        found = []
        for position in range(len(string) + 1):
            if position:
                symbol = self._alphabet[string[position - 1]]
                kernel = [item.advanced() for item in columns[-1].get(symbol, ())]
            if not kernel:
                raise ValueError(f"position {position - 1}: the string is no prefix of a member")
            columns.append({})
            ends = self._close(kernel, columns, position)
            allowed = {index_of[symbol] for symbol in columns[-1] if symbol in index_of}
            found.append(frozenset(allowed | ({len(index_of)} if ends else set())))
        return found

    def _close(self, kernel: list[_Item], columns: list[dict[str | None, list[_Item]]], position: int) -> bool:
        """Fill the last column, items by the symbol that they expect; return whether the string may end here."""
        column, pending, known, ends = columns[-1], [*kernel], {*kernel}, False
        predicted: set[str] = set()

        def add(item: _Item) -> None:
            if item not in known:
                known.add(item)
                pending.append(item)

        while pending:
            item = pending.pop()
            symbol = item.next
            if symbol is None:
                ends |= item.rule.left == self._start and item.origin == 0
                for waiting in [*columns[item.origin].get(item.rule.left, ())]:
                    add(waiting.advanced())
                continue
            column.setdefault(symbol, []).append(item)
            if symbol not in self._rules:
                continue
            if symbol in self._nullable:  # items completed at this position may already have been processed
                add(item.advanced())
            if symbol not in predicted:
                predicted.add(symbol)
                for each in self._rules[symbol]:
                    add(_Item(each, 0, position))
        return ends
