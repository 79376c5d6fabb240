"""The numbers of derivations of short strings, by enumeration."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter

from structattn.tasks.formal_languages.grammar import Grammar, children_alone

MAX_LENGTH = 20
MAX_PRODUCTS = 200_000
String = tuple[str, ...]


@dataclass(frozen=True)
class Ambiguity:
    """What the derivations of short strings say.

    Args:
        max_length: the strings up to this length have one derivation each, but for ``example``; -1: none was counted.
        example: the first string with more; None if there is none.
        num_derivations: of the example.
    """

    max_length: int
    example: String | None = None
    num_derivations: int = 1


def find_ambiguity(grammar: Grammar) -> Ambiguity:
    """Return the first ambiguous string of at most ``MAX_LENGTH`` symbols.

    Cost: at most ``MAX_PRODUCTS`` concatenations; what they do not reach is not decided.

    Args:
        grammar: without cycles among ``children_alone``.
    """
    decided = -1
    for length, counts in enumerate(derivation_counts(grammar)):
        if ambiguous := [string for string, count in counts.items() if count > 1]:
            example = min(ambiguous)
            return Ambiguity(length, example, counts[example])
        decided = length
    return Ambiguity(decided)


def derivation_counts(grammar: Grammar) -> Iterator[Counter[String]]:
    """Yield, for the lengths 0, 1, 2, ..., the number of derivations of each string of that length."""
    counting = _Counting(grammar)
    for length in range(MAX_LENGTH + 1):
        for symbol in counting.order:
            if not counting.count(symbol, length):
                return
        yield counting.tables[grammar.start][length]


class _Counting:
    """Strings by symbol and length, with the number of derivations of each."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar, self._products = grammar, 0
        self.order = tuple(TopologicalSorter(children_alone(grammar)).static_order())
        self.tables: dict[str, dict[int, Counter[String]]] = {left: {} for left in grammar.rules_of}
        for symbol in grammar.alphabet:
            self.tables[symbol] = {1: Counter([(symbol,)])}
        self._least = _least_lengths(grammar)

    def count(self, left: str, length: int) -> bool:
        """Fill the table of a nonterminal for one length; return whether the number of concatenations allows it."""
        found = Counter[String]()
        for each in self._grammar.rules_of[left]:
            rest = sum(self._least[symbol] for symbol in each.right)
            partial = {0: Counter[String]({(): 1})}
            for symbol in each.right:
                rest -= self._least[symbol]
                partial = self._extended(partial, symbol, length - rest)
            found.update(partial.get(length, {}))
            if self._products > MAX_PRODUCTS:
                return False
        self.tables[left][length] = found
        return True

    def _extended(self, partial: dict[int, Counter[String]], symbol: str, longest: int) -> dict[int, Counter[String]]:
        """Append the strings of a symbol to strings by length, up to the length ``longest``."""
        extended: dict[int, Counter[String]] = {}
        for size, heads in partial.items():
            for more, tails in self.tables[symbol].items():
                if size + more > longest:
                    continue
                self._products += len(heads) * len(tails)
                if self._products > MAX_PRODUCTS:
                    return {}
                strings = extended.setdefault(size + more, Counter())
                for head, count in heads.items():
                    for tail, times in tails.items():
                        strings[head + tail] += count * times
        return extended


def _least_lengths(grammar: Grammar) -> dict[str, int]:
    """Return the length of the shortest string of each symbol."""
    unknown = 1 << 60
    least = dict.fromkeys(grammar.rules_of, unknown) | dict.fromkeys(grammar.alphabet, 1)
    shrunk = True
    while shrunk:
        shrunk = False
        for left, right, _ in grammar.rules:
            length = sum(least[symbol] for symbol in right)
            shrunk |= length < least[left]
            least[left] = min(least[left], length)
    return least
