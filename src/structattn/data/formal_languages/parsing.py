"""The exact probability of strings: the inside algorithm over all spans, for many strings at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from structattn.data.formal_languages.binary_rules import BinaryRules, FloatArray, IndexArray

SMALLEST, GREATEST = 1e-150, 1e150
"""Products of two numbers within these limits are exact to rounding."""

CHUNK_BYTES = 1 << 26


class _OutOfRangeError(ArithmeticError):
    """Some span is too improbable, or too probable, for the scale in use."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The rules X -> Y Z sorted by what they cost.

    Where one child can only be a single terminal, the cut between the children is known ("shift"); else every cut is
    tried ("split").

    Attributes:
        left_shifts, right_shifts, splits: indices of rules, whose left, right, or neither child is a single terminal.
        left_rows, right_rows: (G,), for each symbol its row in the tables of left and right children of splits, or -1.
    """

    left_shifts: list[int]
    right_shifts: list[int]
    splits: list[int]
    left_rows: IndexArray
    right_rows: IndexArray

    @classmethod
    def of(cls, rules: BinaryRules) -> "Plan":
        """Sort the rules."""
        single = ~np.isin(np.arange(len(rules.names)), rules.parents)
        left, right = single[rules.lefts], single[rules.rights]
        kinds = (left, ~left & right, ~left & ~right)
        left_shifts, right_shifts, splits = (np.flatnonzero(kind).tolist() for kind in kinds)
        rows = (_row_of_each(side[splits], len(rules.names)) for side in (rules.lefts, rules.rights))
        return cls(left_shifts, right_shifts, splits, *rows)

    def bytes_per_string(self, length: int) -> int:
        """The memory that the tables of one string take."""
        tables = int(self.left_rows.max()) + int(self.right_rows.max()) + 2
        return 8 * max(1, tables) * (length + 1) ** 2


def _row_of_each(used: IndexArray, symbols: int) -> IndexArray:
    rows = np.full(symbols, -1, dtype=np.int64)
    rows[np.unique(used)] = np.arange(np.unique(used).size)
    return rows


class _SplitTables:
    """What is known of the children of splits, so that all cuts of a span are one product of two rows.

    ``left[c, b, i, k]`` is child c over the k terminals from position i of string b, ``right[c, b, j, T - k]`` over the
    k terminals that end before position j; a span of d terminals at i multiplies left[.., i, 1:d] and
    right[.., i + d, T-d+1:T]. ``begins`` and ``ends`` tell where a child is known to begin and to end at all: most
    spans of most rules fail there.
    """

    def __init__(self, plan: Plan, strings: int, time: int) -> None:
        lefts, rights = int(plan.left_rows.max()) + 1, int(plan.right_rows.max()) + 1
        self._plan, self._time = plan, time
        self._left = np.zeros((lefts, strings, time, time + 1))
        self._right = np.zeros((rights, strings, time + 1, time + 1))
        self._begins = np.zeros((lefts, strings, time), dtype=bool)
        self._ends = np.zeros((rights, strings, time + 1), dtype=bool)

    def add_to(self, layer: FloatArray, rules: BinaryRules, width: int) -> None:
        """Add to the spans of a width (G, B, T-d+1) what the splits give, from the narrower spans in the tables."""
        starts = layer.shape[2]
        for split in self._plan.splits:
            left, right = self._plan.left_rows[rules.lefts[split]], self._plan.right_rows[rules.rights[split]]
            string, start = np.nonzero(self._begins[left][:, :starts] & self._ends[right][:, width:])
            before = self._left[left][string, start, 1:width]
            after = self._right[right][string, start + width, self._time - width + 1 : self._time]
            inner = np.einsum("sk,sk->s", before, after)
            layer[rules.parents[split]][string, start] += rules.weights[split] * inner

    def keep(self, layer: FloatArray, width: int) -> None:
        """Note the spans of a width that later splits will ask for.

        Raises:
            _OutOfRangeError: products with one of them could be rounded to 0 or infinity.
        """
        for symbol in np.flatnonzero((self._plan.left_rows >= 0) | (self._plan.right_rows >= 0)):
            string, start = np.nonzero(layer[symbol])
            if not string.size:
                continue
            values = layer[symbol][string, start]
            if values.min() < SMALLEST or values.max() > GREATEST:
                raise _OutOfRangeError
            left, right = self._plan.left_rows[symbol], self._plan.right_rows[symbol]
            if left >= 0:
                self._left[left][string, start, width] = values
                self._begins[left][string, start] = True
            if right >= 0:
                self._right[right][string, start + width, self._time - width] = values
                self._ends[right][string, start + width] = True


def _shifted(rules: BinaryRules, plan: Plan, terminals: FloatArray, narrower: FloatArray, width: int) -> FloatArray:
    """The spans of a width (G, B, T-d+1) from those narrower by one (G, B, T-d+2) and single terminals (G, B, T)."""
    starts = narrower.shape[2] - 1
    layer = np.zeros((*narrower.shape[:2], starts))
    for index in plan.left_shifts:
        first = rules.weights[index] * terminals[rules.lefts[index]][:, :starts]
        layer[rules.parents[index]] += first * narrower[rules.rights[index]][:, 1:]
    for index in plan.right_shifts:
        last = rules.weights[index] * terminals[rules.rights[index]][:, width - 1 :]
        layer[rules.parents[index]] += narrower[rules.lefts[index]][:, :-1] * last
    return layer


def _scaled_probabilities(rules: BinaryRules, plan: Plan, padded: IndexArray, scale: float) -> FloatArray:
    """(B,) P(string) * scale ** length of strings (B, T) that end before their first -1.

    Raises:
        _OutOfRangeError, FloatingPointError: a span left the range of float64.
    """
    strings, time = padded.shape
    emissions = np.pad(rules.emissions * scale, ((0, 0), (0, 1)))  # the last column is what -1 emits: nothing
    layer = terminals = emissions[:, padded]
    tables = _SplitTables(plan, strings, time)
    lengths, found = (padded >= 0).sum(axis=1), np.zeros(strings)
    with np.errstate(under="raise", over="raise"):
        for width in range(1, time + 1):
            if width > 1:
                layer = _shifted(rules, plan, terminals, layer, width)
                tables.add_to(layer, rules, width)
            tables.keep(layer, width)
            found[lengths == width] = layer[rules.root, lengths == width, 0]
    return found


def _padded(strings: Sequence[NDArray[np.integer]]) -> IndexArray:
    rows = np.full((len(strings), max(len(string) for string in strings)), -1, dtype=np.int64)
    for row, string in zip(rows, strings, strict=True):
        row[: len(string)] = string
    return rows


def log_probabilities(
    rules: BinaryRules,
    strings: Sequence[NDArray[np.integer]],
    rate: Callable[[int], float],
    advance: Callable[[int], object],
) -> FloatArray:
    """The logarithm of each string's probability in nats, summed over all derivations; -inf outside the language.

    Probabilities of spans are held times exp(rate * width), which keeps those of long strings near 1.

    Cost: O(splits * T^3) time at most and O(T^2) memory a string, in chunks of like lengths.

    Args:
        rules: the grammar.
        strings: terminals' numbers, each string of at least one.
        rate: the nats a terminal that strings of a length take in the mean.
        advance: told how many strings are done after each chunk.

    Raises:
        ValueError: a string is so long that its spans' probabilities leave the range of float64.
    """
    plan, found = Plan.of(rules), np.full(len(strings), -np.inf)
    order = sorted(range(len(strings)), key=lambda index: len(strings[index]), reverse=True)
    while order:
        longest = len(strings[order[0]])
        size = max(1, CHUNK_BYTES // plan.bytes_per_string(longest))
        chunk, order = order[:size], order[size:]
        lengths = np.array([len(strings[index]) for index in chunk])
        try:
            scaled = _scaled_probabilities(rules, plan, _padded([strings[i] for i in chunk]), np.exp(rate(longest)))
        except (_OutOfRangeError, FloatingPointError):
            raise ValueError(f"a string of up to {longest} symbols has spans whose probability is no float64") from None
        with np.errstate(divide="ignore"):
            found[chunk] = np.log(scaled) - rate(longest) * lengths
        advance(len(chunk))
    return found
