"""Strings of given lengths, exactly as probable as the grammar says."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from structattn.data.formal_languages.binary_rules import FloatArray, IndexArray
from structattn.data.formal_languages.length_table import Choices, LengthTable


@dataclass(frozen=True, eq=False)
class _Pending:
    """Symbols (P,) that are still to be rewritten, the number of terminals of each and where its first one stands."""

    symbols: IndexArray
    sizes: IndexArray
    positions: IndexArray

    def at(self, where: IndexArray) -> "_Pending":
        return _Pending(self.symbols[where], self.sizes[where], self.positions[where])


class Sampler:
    """Draws from P(string | length) by rewriting the symbols of all derivations together, level by level.

    X of d terminals becomes Y of k and Z of d - k with probability weight * P(Y, k) * P(Z, d - k) / P(X, d).

    Args:
        table: of at least the lengths that will be asked for.
    """

    def __init__(self, table: LengthTable) -> None:
        self._table = table
        # Each block's shares sum to 1, so the running sum over all blocks serves each of them up to its start.
        self._running: FloatArray = np.concatenate([[0.0], np.cumsum(table.choices.shares)])

    def sample(self, lengths: IndexArray, generator: Generator) -> IndexArray:
        """The terminals of one string of each length, one string after the other.

        Cost: O(total length * log of the number of choices), in as many numpy calls as the derivations are high.

        Args:
            lengths: (N,), each with at least one string and none over the table's.
            generator: draws one number per rewriting.
        """
        terminals = np.empty(int(lengths.sum()), dtype=np.int64)
        roots = np.full_like(lengths, self._table.rules.root)
        pending = _Pending(roots, lengths, np.cumsum(lengths) - lengths)
        while pending.symbols.size:
            children = self._rewritten(pending, generator)
            done = children.symbols < self._table.rules.alphabet_size
            terminals[children.positions[done]] = children.symbols[done]
            pending = children.at(np.flatnonzero(~done))
        return terminals

    def _rewritten(self, pending: _Pending, generator: Generator) -> _Pending:
        choices = self._table.choices
        chosen = self._drawn(choices, pending, generator)
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

    def _drawn(self, choices: Choices, pending: _Pending, generator: Generator) -> IndexArray:
        blocks = pending.sizes * len(self._table.rules.names) + pending.symbols
        first, end = choices.starts[blocks], choices.starts[blocks + 1]
        low, high = self._running[first], self._running[end]
        drawn = low + generator.random(blocks.size) * (high - low)
        chosen = np.searchsorted(self._running, drawn, side="right") - 1
        inside: IndexArray = np.clip(chosen, first, end - 1)  # rounding may carry a draw onto the block's edge
        return inside
