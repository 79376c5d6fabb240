"""Compare two languages on all of their prefixes up to a length."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.next_symbols import END, Reader, ViablePrefix

String = tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A prefix after which two languages continue differently.

    Args:
        prefix: the shortest one; of equally short ones, the first in the order of the symbols.
        first: what can follow in the first language, ``END`` for the end of a string; None if it has no such prefix.
        second: the same of the second language.
    """

    prefix: String
    first: frozenset[str] | None
    second: frozenset[str] | None


@dataclass(frozen=True)
class Comparison:
    """What a comparison of two languages found on all strings of at most ``max_length`` symbols, or on given ones.

    Args:
        max_length: the longest prefixes that were compared.
        num_prefixes: the number of prefixes of strings of either language.
        num_equal: the number of those after which the same symbols can follow in both.
        difference: the shortest prefix after which they differ; a longer one of a given string if none of these is.
        counterexample: the shortest string in just one of them, if it has at most ``max_length`` symbols, or a given
            one.
        in_first: whether the counterexample is in the first.
    """

    max_length: int
    num_prefixes: int
    num_equal: int
    difference: Difference | None = None
    counterexample: String | None = None
    in_first: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return self.difference is None


@dataclass(frozen=True)
class PrefixPair:
    """A prefix in two languages; None where it begins no string.

    ``count`` is the number of prefixes of its length that it stands for.
    """

    string: String
    first: ViablePrefix | None
    second: ViablePrefix | None
    count: int = 1

    @property
    def sides(self) -> tuple[frozenset[str] | None, frozenset[str] | None]:
        """The symbols that can follow in each language."""
        return tuple(None if each is None else each.next_symbols for each in (self.first, self.second))  # type: ignore[return-value]

    def extended(self, symbol: str) -> "PrefixPair":
        """Return the prefix that is longer by this symbol."""
        first, second = (None if each is None else each.extended(symbol) for each in (self.first, self.second))
        return PrefixPair((*self.string, symbol), first, second, self.count)


def pairs_along(first: Reader, second: Reader, string: Sequence[str]) -> list[PrefixPair]:
    """Return the prefixes of a string, from the empty one to the string itself."""
    return list(accumulate(string, PrefixPair.extended, initial=PrefixPair((), first.start, second.start)))


def with_strings(comparison: Comparison, strings: Iterable[Sequence[PrefixPair]]) -> Comparison:
    """Return the comparison, with the first difference at a prefix of strings if it found none."""
    for pairs in strings if comparison.is_equal else ():
        different = next((each for each in pairs if each.sides[0] != each.sides[1]), None)
        if different is None:
            continue
        ends = [END in (side or ()) for side in pairs[-1].sides]
        comparison = replace(comparison, difference=Difference(different.string, *different.sides))
        if ends[0] != ends[1]:
            comparison = replace(comparison, counterexample=pairs[-1].string, in_first=ends[0])
        return comparison
    return comparison


def prefix_pairs(
    first: Reader, second: Reader, alphabet: Sequence[str], max_length: int, max_prefixes: int, *, joins: bool = False
) -> Iterator[list[PrefixPair]]:
    """Yield the prefixes of strings of either language, those of each length from 0 on together.

    Ends at ``max_length``, or before the lengths at which there are more than ``max_prefixes`` in all. ``joins``: of
    prefixes that both readers continue alike, the first stands for all.
    """
    layer, total = [PrefixPair((), first.start, second.start)], 1
    for length in range(max_length + 1):
        yield layer
        if length == max_length:
            return
        longer: list[PrefixPair] = []
        for each in layer:
            extensions = map(each.extended, alphabet)
            longer += [pair for pair in extensions if pair.first is not None or pair.second is not None]
            if total + len(longer) > max_prefixes and not joins:
                return
        longer = _joined(longer) if joins else longer
        if total + len(longer) > max_prefixes:
            return
        layer, total = longer, total + len(longer)


def _joined(pairs: Sequence[PrefixPair]) -> list[PrefixPair]:
    found: dict[tuple[int, int], PrefixPair] = {}
    for each in pairs:
        key = id(each.first), id(each.second)
        found[key] = replace(found[key], count=found[key].count + each.count) if key in found else each
    return list(found.values())


def compare(
    first: Reader,
    second: Reader,
    alphabet: Sequence[str],
    max_length: int,
    max_prefixes: int = 20_000,
    *,
    stops: bool = False,
) -> Comparison:
    """Compare the symbols that can follow each prefix of strings of either language.

    A lower maximal length is taken where more than ``max_prefixes`` are not continued alike. ``stops``: at the
    first difference, for the answer whether there is one.

    Cost: that of Earley's algorithm for each prefix, some tenths of a millisecond for small grammars.

    Raises:
        UsageError: ``max_length`` is negative: no prefix would be compared.
    """
    if max_length < 0:
        raise UsageError(f"max_length={max_length}; expected a whole number of at least 0")
    reached, count, equal = 0, 0, 0
    difference: Difference | None = None
    counterexample: tuple[String, bool] | None = None
    for layer in prefix_pairs(first, second, alphabet, max_length, max_prefixes, joins=True):
        for each in layer:
            count += each.count
            left, right = each.sides
            if left == right:
                equal += each.count
                continue
            difference = difference or Difference(each.string, left, right)
            ends = END in (left or ()), END in (right or ())
            if counterexample is None and ends[0] != ends[1]:
                counterexample = each.string, ends[0]
            if stops:
                return Comparison(len(each.string), count, equal, difference, *(counterexample or (None, False)))
        reached = len(layer[0].string) if layer else max_length
    return Comparison(reached, count, equal, difference, *(counterexample or (None, False)))
