"""The symbols that can follow a prefix in the strings of a grammar, by Earley's algorithm (1970), prefix by prefix."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from structattn.support.grouping import grouped
from structattn.tasks.formal_languages.grammar import Grammar, deriving, pruned

END = ""
"""The end of a string, among the symbols that can follow."""
Item = tuple[int, int, "Prefix | None"]  # rule, number of its symbols that were read, where it began; None: here
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
        self._rules_of = grouped(range(len(rules)), lambda index: rules[index].left)
        self._empty = deriving(rules)
        self._prefixes: dict[frozenset[Item | str], Prefix] = {}
        self.start = self._prefix([(len(self._rights) - 1, 0, None)])

    def is_terminal(self, symbol: str) -> bool:
        """Return whether a symbol has no rules."""
        return symbol not in self._rules_of

    def after(self, prefix: "Prefix", symbol: str) -> "Prefix":
        """Return the prefix after one and a symbol that can follow it."""
        waiting = prefix.waiting[symbol]
        return self._prefix([new for item in waiting for new in self._advanced(item, prefix)])

    def _advanced(self, item: Item, position: "Prefix") -> list[Item]:
        """Return an item after its next symbol, or, if only its own left-hand side is left, what waits for that.

        So right recursion leaves no chain of items, and prefixes that differ only by one are the same object.
        """
        rule, done, origin = item[0], item[1] + 1, item[2] or position
        left = self._lefts[rule]
        if self._rights[rule][done:] == (left,):
            return [(each, read, began or origin) for each, read, began in origin.waiting[left]]
        return [(rule, done, origin)]

    def _prefix(self, kernel: Sequence[Item]) -> "Prefix":
        """Return the prefix of these items: one object, whatever was read, where the same items wait for more."""
        waiting = Waiting()
        pending, items = list(kernel), set(kernel)
        while pending:
            item = pending.pop()
            new = (
                self._completed(item, waiting) if item[1] == len(self._rights[item[0]]) else self._waits(item, waiting)
            )
            pending += [each for each in new if each not in items]
            items.update(new)
        if self._rights[-1][0] in self._empty and not self._prefixes:
            waiting[END] = []
        waits = (each for each in items if each[2] is not None and each[1] < len(self._rights[each[0]]))
        # what is predicted follows from the rest; only the start has nothing else
        key = frozenset[Item | str](
            [*waits, *(kernel if not self._prefixes else ()), *([END] if END in waiting else [])]
        )
        return self._prefixes.setdefault(key, Prefix(self, waiting))

    def _completed(self, item: Item, waiting: Waiting) -> list[Item]:
        rule, _, origin = item
        if origin is None:
            return []  # it derived the empty string, which was skipped where it was predicted
        left = self._lefts[rule]
        if left == END:
            waiting[END] = []
        return [new for each in origin.waiting.get(left, ()) for new in self._advanced(each, origin)]

    def _waits(self, item: Item, waiting: Waiting) -> list[Item]:
        rule, done, origin = item
        symbol = self._rights[rule][done]
        known = symbol in waiting or symbol not in self._rules_of
        waiting.setdefault(symbol, []).append(item)
        predicted: list[Item] = [] if known else [(each, 0, None) for each in self._rules_of[symbol]]
        return predicted + ([(rule, done + 1, origin)] if symbol in self._empty else [])


class Prefix:
    """A prefix of at least one string of the language; those in which the same items wait are one object."""

    def __init__(self, recognizer: Recognizer, waiting: Waiting) -> None:
        self._recognizer, self.waiting = recognizer, waiting
        self._after: dict[str, Prefix] = {}

    @cached_property
    def next_symbols(self) -> frozenset[str]:
        """The symbols that follow the prefix in some string, and ``END`` if it is a string itself."""
        return frozenset(symbol for symbol in self.waiting if symbol == END or self._recognizer.is_terminal(symbol))

    def extended(self, symbol: str) -> "Prefix | None":
        """Return the prefix that is one symbol longer; None if it begins no string."""
        if symbol == END or symbol not in self.next_symbols:
            return None
        if symbol not in self._after:
            self._after[symbol] = self._recognizer.after(self, symbol)
        return self._after[symbol]


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
