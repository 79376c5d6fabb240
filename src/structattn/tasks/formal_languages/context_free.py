"""Exact probabilities of strings by the inside algorithm, for many strings at once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.settings.choices import Variant
from structattn.support.progress import Advance, show_nothing
from structattn.tasks.formal_languages.grammar import Grammar, normal_form, rounded, with_variant
from structattn.tasks.formal_languages.length_table import (
    BinaryRules,
    FloatArray,
    IndexArray,
    LengthTable,
    Sampler,
    binary_rules,
    length_table,
)
from structattn.tasks.formal_languages.strings import require_symbols

SMALLEST, GREATEST = 1e-150, 1e150
"""Products of two numbers within these limits are exact to rounding."""

CHUNK_BYTES = 1 << 26


class _OutOfRangeError(ArithmeticError):
    """The probability of a span is out of range at the current scale."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The rules X -> Y Z grouped by cost.

    If one child can only be a single terminal, the split point is known ("shift"); otherwise every split point is tried
    ("split").

    Attributes:
        left_shifts: the rules whose left child is a single terminal, by this child: finite automata have many.
        right_shifts, splits: the rules whose right child, or neither, is a single terminal.
        left_rows, right_rows: (G,), the row of each symbol in the tables of left and right children of splits, or -1.
    """

    left_shifts: dict[int, IndexArray]
    right_shifts: list[int]
    splits: list[int]
    left_rows: IndexArray
    right_rows: IndexArray

    @classmethod
    def from_rules(cls, rules: BinaryRules) -> "Plan":
        """Group the rules."""
        single = ~np.isin(np.arange(len(rules.names)), rules.parents)
        left, right = single[rules.lefts], single[rules.rights]
        kinds = (left, ~left & right, ~left & ~right)
        left_rules, right_rules, split_rules = (np.flatnonzero(kind) for kind in kinds)
        left_shifts = {
            int(child): left_rules[rules.lefts[left_rules] == child] for child in np.unique(rules.lefts[left])
        }
        right_shifts, splits = right_rules.tolist(), split_rules.tolist()
        rows = (_row_of_each(side[splits], len(rules.names)) for side in (rules.lefts, rules.rights))
        return cls(left_shifts, right_shifts, splits, *rows)

    def bytes_per_string(self, length: int) -> int:
        """Return the memory for one string: that of the tables, or of three layers of all symbols if that is more."""
        tables = int(self.left_rows.max()) + int(self.right_rows.max()) + 2
        return 8 * (length + 1) * max(tables * (length + 1), 3 * self.left_rows.size, length + 1)


def _row_of_each(used: IndexArray, symbols: int) -> IndexArray:
    rows = np.full(symbols, -1, dtype=np.int64)
    rows[np.unique(used)] = np.arange(np.unique(used).size)
    return rows


class _SplitTables:
    """Tables of the children of splits, in which all split points of a span are one product of two rows.

    ``left[c, b, i, k]`` is the probability of child c over the k terminals from position i of string b,
    ``right[c, b, j, T - k]`` over the k terminals before position j. A span of d terminals at i multiplies
    left[.., i, 1:d] and right[.., i + d, T-d+1:T]. ``begins`` and ``ends`` mark where a child can begin and end, which
    rules out most spans of most rules.
    """

    def __init__(self, plan: Plan, strings: int, time: int) -> None:
        lefts, rights = int(plan.left_rows.max()) + 1, int(plan.right_rows.max()) + 1
        self._plan, self._time = plan, time
        self._left = np.zeros((lefts, strings, time, time + 1))
        self._right = np.zeros((rights, strings, time + 1, time + 1))
        self._begins = np.zeros((lefts, strings, time), dtype=bool)
        self._ends = np.zeros((rights, strings, time + 1), dtype=bool)

    def add_to(self, layer: FloatArray, rules: BinaryRules, width: int) -> None:
        """Add the contribution of splits to the spans of a width, (G, B, T-d+1), from the narrower spans."""
        starts = layer.shape[2]
        for split in self._plan.splits:
            left, right = self._plan.left_rows[rules.lefts[split]], self._plan.right_rows[rules.rights[split]]
            string, start = np.nonzero(self._begins[left][:, :starts] & self._ends[right][:, width:])
            before = self._left[left][string, start, 1:width]
            after = self._right[right][string, start + width, self._time - width + 1 : self._time]
            inner = np.einsum("sk,sk->s", before, after)
            layer[rules.parents[split]][string, start] += rules.weights[split] * inner

    def keep(self, layer: FloatArray, width: int) -> None:
        """Store the spans of a width that wider splits need.

        Raises:
            _OutOfRangeError: products with one of them could underflow or overflow.
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


def _shift(rules: BinaryRules, plan: Plan, terminals: FloatArray, narrower: FloatArray, width: int) -> FloatArray:
    """Return the spans of a width, (G, B, T-d+1), that shifts give from the next narrower ones and single terminals."""
    starts = narrower.shape[2] - 1
    layer = np.zeros((*narrower.shape[:2], starts))
    flat, cells = layer.reshape(-1), layer[0].size
    for left, chosen in plan.left_shifts.items():
        string, start = np.nonzero(terminals[left][:, :starts])
        first = rules.weights[chosen][:, None] * terminals[left][string, start]
        products = first * narrower[rules.rights[chosen][:, None], string, start + 1]
        np.add.at(flat, (rules.parents[chosen][:, None] * cells + string * starts + start).ravel(), products.ravel())
    for index in plan.right_shifts:
        last = rules.weights[index] * terminals[rules.rights[index]][:, width - 1 :]
        layer[rules.parents[index]] += narrower[rules.lefts[index]][:, :-1] * last
    return layer


def _scaled_probabilities(rules: BinaryRules, plan: Plan, padded: IndexArray, scale: float) -> FloatArray:
    """Return P(string) * scale ** length, (B,), of strings (B, T) that end before their first -1.

    Raises:
        _OutOfRangeError, FloatingPointError: a span left the range of float64.
    """
    strings, time = padded.shape
    emissions = np.pad(rules.emissions * scale, ((0, 0), (0, 1)))  # the last column, for -1, emits nothing
    layer = terminals = emissions[:, padded]
    tables = _SplitTables(plan, strings, time)
    lengths, probabilities = (padded >= 0).sum(axis=1), np.zeros(strings)
    with np.errstate(under="raise", over="raise"):
        for width in range(1, time + 1):
            if width > 1:
                layer = _shift(rules, plan, terminals, layer, width)
                tables.add_to(layer, rules, width)
            tables.keep(layer, width)
            probabilities[lengths == width] = layer[rules.root, lengths == width, 0]
    return probabilities


def _padded(strings: Sequence[NDArray[np.integer]]) -> IndexArray:
    rows = np.full((len(strings), max(len(string) for string in strings)), -1, dtype=np.int64)
    for row, string in zip(rows, strings, strict=True):
        row[: len(string)] = string
    return rows


def log_probabilities(
    rules: BinaryRules, strings: Sequence[NDArray[np.integer]], rate: Callable[[int], float], advance: Advance
) -> FloatArray:
    """Return the log-probability of each string in nats, summed over all derivations; -inf outside the language.

    Probabilities of spans are multiplied by exp(rate * width), which keeps those of long strings near 1.

    Cost: at most O(splits * T^3) time and O(T^2) memory per string, in chunks of similar lengths.

    Args:
        rules: the grammar.
        strings: indices of terminals, at least one per string.
        rate: maps a length to the average nats per terminal of strings of that length.
        advance: called with the number of strings after each chunk.

    Raises:
        ValueError: a string is so long that probabilities of its spans are outside the range of float64.
    """
    plan, log_probs = Plan.from_rules(rules), np.full(len(strings), -np.inf)
    order = sorted(range(len(strings)), key=lambda index: len(strings[index]), reverse=True)
    while order:
        longest = len(strings[order[0]])
        size = max(1, CHUNK_BYTES // plan.bytes_per_string(longest))
        chunk, order = order[:size], order[size:]
        lengths = np.array([len(strings[index]) for index in chunk])
        try:
            scaled = _scaled_probabilities(rules, plan, _padded([strings[i] for i in chunk]), np.exp(rate(longest)))
        except (_OutOfRangeError, FloatingPointError):
            raise ValueError(
                f"a string of up to {longest} symbols has spans whose probability is outside the range of float64"
            ) from None
        with np.errstate(divide="ignore"):
            log_probs[chunk] = np.log(scaled) - rate(longest) * lengths
        advance(len(chunk))
    return log_probs


class ContextFreeLanguage:
    """The language of a probabilistic context-free grammar, with exact probabilities.

    Strings are arrays of indices into ``alphabet``. Tables over lengths are computed when first needed, and again when
    a longer string is requested; results do not depend on them.

    Args:
        name: the name in messages.
        variant: ``faithful``: the probabilities of the grammar; ``reference``: those of the code behind the published
            numbers. See ``structattn.tasks.formal_languages.grammar``.
        grammar: a grammar whose weights sum to 1 per left-hand side.

    Raises:
        ValueError: the grammar has no normal form, see ``normal_form``; or its weights, or the probability of the empty
            string, are below the normal numbers of float64.
    """

    def __init__(self, name: str, variant: Variant, grammar: Grammar) -> None:
        self.name, self.variant, self.grammar = name, variant, grammar
        normal = normal_form(grammar, variant)
        self._rules = binary_rules(normal.grammar)
        self._log_empty = math.log(rounded(normal.empty)) if normal.empty else -math.inf
        self._cached_tables: tuple[LengthTable, Sampler] | None = None

    def __repr__(self) -> str:
        return f"formal_language({self.name!r}, {self.variant!r})"

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The terminals, which strings index."""
        return self.grammar.alphabet

    def _tables(self, max_length: int) -> tuple[LengthTable, Sampler]:
        if self._cached_tables is None or self._cached_tables[0].max_length < max_length:
            table = length_table(self._rules, max(max_length, 1))
            self._cached_tables = table, Sampler(table)
        return self._cached_tables

    def log_length_probability(self, length: int) -> float:
        """Return log P(length), the sum over all strings of that length; -inf if there is none.

        Raises:
            ValueError: ``length`` is negative.
        """
        if length < 0:
            raise ValueError(f"length is {length}; expected at least 0")
        return self._log_empty if length == 0 else float(self._tables(length)[0].log_lengths[length])

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from ``low`` to ``high`` inclusive that have strings.

        Raises:
            ValueError: not 0 <= low <= high.
        """
        if not 0 <= low <= high:
            raise ValueError(f"lengths {low} to {high}; expected 0 <= low <= high")
        self._tables(high)  # computes the tables once for all lengths
        return [length for length in range(low, high + 1) if self.log_length_probability(length) > -math.inf]

    def sample(self, length: int, count: int, generator: Generator) -> IndexArray:
        """Sample ``count`` strings of a length, (count, length), from P(string | length).

        Raises:
            ValueError: there is no string of that length, or ``count`` is negative.
        """
        if count < 0:
            raise ValueError(f"count is {count}; expected at least 0")
        self._require_strings(length)
        sizes = np.full(count, length, dtype=np.int64)
        return self._terminals(sizes, generator).reshape(count, length)

    def sample_each(self, lengths: ArrayLike, generator: Generator) -> list[IndexArray]:
        """Sample one string of each length, (N,), from P(string | length); faster than one at a time.

        Raises:
            ValueError: there is no string of one of the lengths.
        """
        sizes = np.asarray(lengths, dtype=np.int64)
        return np.split(self._terminals(sizes, generator), np.cumsum(sizes)[:-1]) if sizes.size else []

    def _terminals(self, sizes: IndexArray, generator: Generator) -> IndexArray:
        _, sampler = self._tables(int(sizes.max(initial=1)))
        for length in np.unique(sizes):
            self._require_strings(int(length))
        return sampler.sample(sizes[sizes > 0], generator)

    def _require_strings(self, length: int) -> None:
        if self.log_length_probability(length) == -math.inf:
            raise ValueError(f"{with_variant(self.name, self.variant)} has no string of length {length}")

    def log_probabilities(self, strings: Sequence[NDArray[np.integer]], advance: Advance = show_nothing) -> FloatArray:
        """Return the log-probability of each string, (N,) in nats, over all derivations; -inf outside the language.

        Cost: at most O(T^3) for a string of length T; see ``structattn.tasks.formal_languages.context_free``.

        Raises:
            ValueError: an index is outside the alphabet, or a probability is outside the range of float64.
        """
        require_symbols(strings, len(self.alphabet))
        log_probs = np.full(len(strings), self._log_empty)
        nonempty = [index for index, string in enumerate(strings) if len(string)]
        if nonempty:
            parts = [np.asarray(strings[index]) for index in nonempty]
            log_probs[nonempty] = log_probabilities(self._rules, parts, self._nats_per_symbol, advance)
        return log_probs

    def _nats_per_symbol(self, length: int) -> float:
        """Estimate -log P(string) / length for strings of at most that length; 0 if there are none."""
        valid = [size for size in self.valid_lengths(1, length)[-1:] if size]
        return (self.derivation_entropy(valid[0]) - self.log_length_probability(valid[0])) / valid[0] if valid else 0.0

    def parsing_cost(self, length: int) -> int:
        """Return a measure of time and memory of ``log_probabilities`` for a string: a second is some millions."""
        plan = Plan.from_rules(self._rules)
        return 10 * len(self._rules.parents) * length + len(plan.splits) * length**2

    def derivation_entropy(self, length: int) -> float:
        """Return the entropy, in nats, of the derivation of a string of that length.

        It equals E[-log P(string | length)] for unambiguous grammars (all but ``padded-reversal`` and ``hardest-cfl``),
        and exceeds it for ambiguous ones.

        Raises:
            ValueError: there is no string of that length.
        """
        self._require_strings(length)
        return float(self._tables(length)[0].derivation_entropies[length]) if length else 0.0
