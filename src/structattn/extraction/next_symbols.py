"""The symbols that can follow a prefix in the strings of a grammar, by Earley's algorithm (1970), prefix by prefix."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Protocol

from structattn.extraction.to_grammar import pruned
from structattn.tasks.formal_languages.grammar import Grammar, deriving

END = ""
"""The end of a string, among the symbols that can follow."""
Item = tuple[int, int, int]  # rule, number of its symbols that were read, position at which it began
Waiting = dict[str, list[Item]]  # next symbol -> the items that wait for it


class ViablePrefix(Protocol):
    """A prefix of at least one string of a language."""

    @property
    def next_symbols(self) -> frozenset[str]:
        """The symbols that follow the prefix in some string, and ``END`` if it is a string itself."""

    def extended(self, symbol: str) -> "ViablePrefix | None":
        """Return the prefix that is one symbol longer; None if it begins no string."""


class Reader(Protocol):
    """Reads strings of a language symbol by symbol."""

    @property
    def start(self) -> ViablePrefix:
        """The empty prefix."""


class Recognizer:
    """Reads strings of a grammar, ambiguous or not, symbol by symbol.

    Args:
        grammar: rules that derive no string are dropped; its weights do not matter.

    Raises:
        EmptyLanguageError: the grammar derives no string.
    """

    def __init__(self, grammar: Grammar) -> None:
        rules = pruned(grammar.start, grammar.alphabet, grammar.rules).rules
        self._rights = [each.right for each in rules] + [(grammar.start,)]
        self._lefts = [each.left for each in rules] + [END]
        self._rules_of: dict[str, list[int]] = {}
        for index, each in enumerate(rules):
            self._rules_of.setdefault(each.left, []).append(index)
        self._empty = deriving(rules)

    @property
    def start(self) -> "Prefix":
        """The empty prefix."""
        return Prefix(self, (), self._closure([(len(self._rights) - 1, 0, 0)], ()))

    def is_terminal(self, symbol: str) -> bool:
        """Return whether a symbol has no rules."""
        return symbol not in self._rules_of

    def extended(self, before: Sequence[Waiting], items: Iterable[Item]) -> Waiting:
        """Return what waits after the items whose next symbol was read."""
        return self._closure([(rule, done + 1, origin) for rule, done, origin in items], before)

    def _closure(self, kernel: Iterable[Item], before: Sequence[Waiting]) -> Waiting:
        position, waiting = len(before), Waiting()
        pending = list(kernel)
        items = set(pending)
        while pending:
            rule, done, origin = item = pending.pop()
            right = self._rights[rule]
            if done < len(right):
                symbol = right[done]
                predicted = symbol in waiting or symbol not in self._rules_of
                waiting.setdefault(symbol, []).append(item)
                new = [] if predicted else [(each, 0, position) for each in self._rules_of[symbol]]
                if symbol in self._empty:
                    new.append((rule, done + 1, origin))
            elif origin == position:
                continue  # it derived the empty string, which was skipped where it was predicted
            else:
                left = self._lefts[rule]
                new = [(each, read + 1, began) for each, read, began in before[origin].get(left, ())]
                if left == END:
                    waiting[END] = []
            for each in new:
                if each not in items:
                    items.add(each)
                    pending.append(each)
        if position == 0 and self._rights[-1][0] in self._empty:
            waiting[END] = []
        return waiting


class Prefix:
    """A prefix of at least one string of the language."""

    def __init__(self, recognizer: Recognizer, before: tuple[Waiting, ...], waiting: Waiting) -> None:
        self._recognizer, self._before, self._waiting = recognizer, before, waiting

    @cached_property
    def next_symbols(self) -> frozenset[str]:
        """The symbols that follow the prefix in some string, and ``END`` if it is a string itself."""
        return frozenset(symbol for symbol in self._waiting if symbol == END or self._recognizer.is_terminal(symbol))

    def extended(self, symbol: str) -> "Prefix | None":
        """Return the prefix that is one symbol longer; None if it begins no string."""
        if symbol == END or symbol not in self.next_symbols:
            return None
        before = (*self._before, self._waiting)
        return Prefix(self._recognizer, before, self._recognizer.extended(before, self._waiting[symbol]))


def following(reader: Reader, string: Sequence[str]) -> list[frozenset[str]]:
    """Return the symbols that can follow each prefix of a string, from the empty one up to the longest viable one."""
    prefix: ViablePrefix | None = reader.start
    found = [reader.start.next_symbols]
    for symbol in string:
        assert prefix is not None
        prefix = prefix.extended(symbol)
        if prefix is None:
            break
        found.append(prefix.next_symbols)
    return found


def contains(reader: Reader, string: Sequence[str]) -> bool:
    """Return whether a string is in the language."""
    found = following(reader, string)
    return len(found) > len(string) and END in found[-1]
