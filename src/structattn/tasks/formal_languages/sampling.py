"""Exact sampling of strings of given lengths from a grammar."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from structattn.tasks.formal_languages.binary_rules import FloatArray, IndexArray
from structattn.tasks.formal_languages.length_table import Choices, LengthTable


@dataclass(frozen=True, eq=False)
class _Pending:
    """Symbols (P,) to be rewritten, with the number of terminals of each and the position of its first terminal."""

    symbols: IndexArray
    sizes: IndexArray
    positions: IndexArray

    def select(self, where: IndexArray) -> "_Pending":
        return _Pending(self.symbols[where], self.sizes[where], self.positions[where])


class Sampler:
    """Samples from P(string | length) by rewriting the symbols of all derivations at once, level by level.

    X with d terminals becomes Y with k and Z with d - k terminals with probability
    weight * P(Y, k) * P(Z, d - k) / P(X, d).

    Args:
        table: covers the lengths to be sampled.
    """

    def __init__(self, table: LengthTable) -> None:
        self._table = table
        # The shares of each block sum to 1, so one cumulative sum over all blocks serves each block up to its start.
        self._cumulative: FloatArray = np.concatenate([[0.0], np.cumsum(table.choices.shares)])

    def sample(self, lengths: IndexArray, generator: Generator) -> IndexArray:
        """Return the concatenated terminals of one string of each length.

        Cost: O(total length * log of the number of choices); one pass of numpy calls per level.

        Args:
            lengths: (N,), each with at least one string and at most the table's maximum.
            generator: draws one number per rewritten symbol.
        """
        terminals = np.empty(int(lengths.sum()), dtype=np.int64)
        roots = np.full_like(lengths, self._table.rules.root)
        pending = _Pending(roots, lengths, np.cumsum(lengths) - lengths)
        while pending.symbols.size:
            children = self._rewrite(pending, generator)
            done = children.symbols < self._table.rules.alphabet_size
            terminals[children.positions[done]] = children.symbols[done]
            pending = children.select(np.flatnonzero(~done))
        return terminals

    def _rewrite(self, pending: _Pending, generator: Generator) -> _Pending:
        choices = self._table.choices
        chosen = self._draw(choices, pending, generator)
        left_sizes = choices.left_sizes[chosen]
        paired = np.flatnonzero(choices.rights[chosen] >= 0)
        rights = _Pending(
            choices.rights[chosen[paired]],
            (pending.sizes - left_sizes)[paired],
            (pending.positions + left_sizes)[paired],
        )
        return _Pending(
            np.concatenate([choices.lefts[chosen], rights.symbols]),
            np.concatenate([left_sizes, rights.sizes]),
            np.concatenate([pending.positions, rights.positions]),
        )

    def _draw(self, choices: Choices, pending: _Pending, generator: Generator) -> IndexArray:
        blocks = pending.sizes * len(self._table.rules.names) + pending.symbols
        first, end = choices.starts[blocks], choices.starts[blocks + 1]
        low, high = self._cumulative[first], self._cumulative[end]
        drawn = low + generator.random(blocks.size) * (high - low)
        chosen = np.searchsorted(self._cumulative, drawn, side="right") - 1
        inside: IndexArray = np.clip(chosen, first, end - 1)  # rounding may move a draw to the edge of the block
        return inside
