"""The probability of each length, and the derivation steps that lead to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from structattn.tasks.formal_languages.binary_rules import BinaryRules, FloatArray, IndexArray


@dataclass(frozen=True, eq=False)
class Choices:
    """The first steps of all derivations of d terminals from a symbol X: block d * G + X of C choices.

    Attributes:
        starts: (D * G + 1,), the start of each block in the arrays below; D = max_length + 1.
        lefts: (C,), the left child, or the terminal of a choice that is a terminal.
        rights: (C,), the right child, or -1.
        left_sizes: (C,), the number of terminals of the left child.
        shares: (C,), the probability of the choice within its block.
    """

    starts: IndexArray
    lefts: IndexArray
    rights: IndexArray
    left_sizes: IndexArray
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class LengthTable:
    """log P(X derives d terminals) for d = 0..max_length, and the choices over which it sums.

    Attributes:
        rules: the G symbols and their rules.
        log_inside: (G, max_length + 1), in nats.
        choices: see ``Choices``.
    """

    rules: BinaryRules
    log_inside: FloatArray
    choices: Choices

    @property
    def max_length(self) -> int:
        """The greatest length in the table."""
        return int(self.log_inside.shape[1]) - 1

    @property
    def log_lengths(self) -> FloatArray:
        """(max_length + 1,), the log-probability of each length of the whole string; -inf for the empty string."""
        row: FloatArray = self.log_inside[self.rules.root]
        return row

    @cached_property
    def derivation_entropies(self) -> FloatArray:
        """(max_length + 1,), the entropy in nats of a derivation given its length; 0 if no string has that length.

        H(X, d) = sum over choices of share * (-log share + H(left, k) + H(right, d - k)). A derivation determines
        its string, so this is E[-log p(string | length)] for an unambiguous grammar, and more for an ambiguous one.
        """
        choices, symbols = self.choices, len(self.rules.names)
        entropies = np.zeros((self.max_length + 1, symbols))
        for size in range(1, self.max_length + 1):  # the children of terminals, the choices of size 1, have entropy 0
            blocks = choices.starts[size * symbols : (size + 1) * symbols + 1]
            row = slice(blocks[0], blocks[-1])
            parents = np.repeat(np.arange(symbols), np.diff(blocks))
            shares, cuts = choices.shares[row], choices.left_sizes[row]
            below = entropies[cuts, choices.lefts[row]] + entropies[size - cuts, choices.rights[row]]
            entropies[size] = np.bincount(parents, shares * (below - np.log(shares)), minlength=symbols)
        root: FloatArray = entropies[:, self.rules.root]
        return root


class _Layer(NamedTuple):
    """The choices of all symbols for one size, ordered by symbol, with their log-weights; rows as in ``Choices``."""

    parents: IndexArray
    lefts: IndexArray
    rights: IndexArray
    left_sizes: IndexArray
    log_weights: FloatArray

    def select(self, where: NDArray[np.bool_]) -> "_Layer":
        lefts, rights, left_sizes = self.lefts[where], self.rights[where], self.left_sizes[where]
        return _Layer(self.parents[where], lefts, rights, left_sizes, self.log_weights[where])


def _terminal_layer(rules: BinaryRules) -> _Layer:
    parents, terminals = np.nonzero(rules.emissions)
    none = np.full_like(parents, -1)
    return _Layer(parents, terminals, none, np.ones_like(parents), np.log(rules.emissions[parents, terminals]))


def _pair_layer(rules: BinaryRules, log_inside: FloatArray, size: int) -> _Layer:
    scores = log_inside[rules.lefts, 1:size] + log_inside[rules.rights, size - 1 : 0 : -1]
    used, cuts = np.nonzero(scores > -np.inf)
    log_weights = scores[used, cuts] + np.log(rules.weights[used])
    return _Layer(rules.parents[used], rules.lefts[used], rules.rights[used], cuts + 1, log_weights)


def _concatenate(layers: Sequence[_Layer], log_inside: FloatArray) -> Choices:
    """Concatenate the layers of sizes 1, 2, ..., without choices whose share rounds to 0."""
    symbols, kept, all_shares = log_inside.shape[0], [], []
    counts = np.zeros((log_inside.shape[1], symbols), dtype=np.int64)
    for size, layer in enumerate(layers, start=1):
        shares = np.exp(layer.log_weights - log_inside[layer.parents, size])
        kept.append(layer.select(shares > 0))
        all_shares.append(shares[shares > 0])
        counts[size] = np.bincount(kept[-1].parents, minlength=symbols)
    _, lefts, rights, left_sizes, _ = (np.concatenate(column) for column in zip(*kept, strict=True))
    return Choices(np.concatenate([[0], np.cumsum(counts)]), lefts, rights, left_sizes, np.concatenate(all_shares))


def length_table(rules: BinaryRules, max_length: int) -> LengthTable:
    """Compute log P(X, d), with P(X, d) = sum over X -> Y Z and k of weight * P(Y, k) * P(Z, d - k).

    Cost: O(rules * max_length^2) time and memory.

    Args:
        rules: the grammar.
        max_length: the greatest d, at least 1.
    """
    log_inside = np.full((len(rules.names), max_length + 1), -np.inf)
    layers = []
    for size in range(1, max_length + 1):
        layer = _terminal_layer(rules) if size == 1 else _pair_layer(rules, log_inside, size)
        np.logaddexp.at(log_inside[:, size], layer.parents, layer.log_weights)
        layers.append(layer)
    return LengthTable(rules, log_inside, _concatenate(layers, log_inside))
