"""Context-free languages: sampling of strings, and probabilities of strings and lengths."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.tasks.formal_languages import parsing
from structattn.tasks.formal_languages.binary_rules import FloatArray, IndexArray, binary_rules
from structattn.tasks.formal_languages.grammar import Grammar
from structattn.tasks.formal_languages.length_table import LengthTable, length_table
from structattn.tasks.formal_languages.normal_form import Variant, normal_form
from structattn.tasks.formal_languages.sampling import Sampler


class ContextFreeLanguage:
    """The language of a probabilistic context-free grammar, with exact probabilities.

    Strings are arrays of indices into ``alphabet``. Tables over lengths are computed when first needed, and again when
    a longer string is requested; results do not depend on them.

    Args:
        name: the name in messages.
        variant: ``faithful``: the probabilities of the grammar; ``reference``: those of the code behind the published
            numbers. See ``structattn.tasks.formal_languages.normal_form``.
        grammar: a grammar whose weights sum to 1 per left-hand side.
    """

    def __init__(self, name: str, variant: Variant, grammar: Grammar) -> None:
        self.name, self.variant, self.grammar = name, variant, grammar
        normal = normal_form(grammar, variant)
        self._rules = binary_rules(normal.grammar)
        self._log_empty = math.log(normal.empty) if normal.empty else -math.inf
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
            raise ValueError(f"{self.name} ({self.variant}) has no string of length {length}")

    def log_probabilities(
        self, strings: Sequence[NDArray[np.integer]], advance: Callable[[int], object] = lambda count: None
    ) -> FloatArray:
        """Return the log-probability of each string, (N,) in nats, over all derivations; -inf outside the language.

        Cost: at most O(T^3) for a string of length T; see ``structattn.tasks.formal_languages.parsing``.

        Args:
            strings: indices into ``alphabet``, of any lengths.
            advance: called with the number of strings after each chunk.

        Raises:
            ValueError: an index is outside the alphabet, or a probability is outside the range of float64.
        """
        for index, string in enumerate(strings):
            self._require_indices(index, np.asarray(string))
        found = np.full(len(strings), self._log_empty)
        nonempty = [index for index, string in enumerate(strings) if len(string)]
        if nonempty:
            parts = [np.asarray(strings[index]) for index in nonempty]
            found[nonempty] = parsing.log_probabilities(self._rules, parts, self._nats_per_symbol, advance)
        return found

    def _require_indices(self, index: int, string: NDArray[np.integer]) -> None:
        if string.ndim != 1 or not (string.size == 0 or np.issubdtype(string.dtype, np.integer)):
            raise ValueError(f"string {index} is {string.dtype} of shape {string.shape}; expected integers (length,)")
        outside = string[(string < 0) | (string >= len(self.alphabet))]
        if outside.size:
            raise ValueError(f"string {index} holds {outside[0]}; expected 0 to {len(self.alphabet) - 1}")

    def _nats_per_symbol(self, length: int) -> float:
        """Estimate -log P(string) / length for strings of at most that length; 0 if there are none."""
        valid = [size for size in self.valid_lengths(1, length)[-1:] if size]
        return (self.derivation_entropy(valid[0]) - self.log_length_probability(valid[0])) / valid[0] if valid else 0.0

    def derivation_entropy(self, length: int) -> float:
        """Return the entropy, in nats, of the derivation of a string of that length.

        It equals E[-log P(string | length)] for unambiguous grammars (all but ``padded-reversal`` and ``hardest-cfl``),
        and exceeds it for ambiguous ones.

        Raises:
            ValueError: there is no string of that length.
        """
        self._require_strings(length)
        return float(self._tables(length)[0].derivation_entropies[length]) if length else 0.0
