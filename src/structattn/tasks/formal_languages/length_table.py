"""Binarized grammars as arrays: probabilities by length, and strings sampled by them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.tasks.formal_languages.grammar import Grammar, Rule, rounded

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BinaryRules:
    """The rules X -> Y Z and X -> a of a grammar. Symbols 0 to A-1 are the terminals in the order of the alphabet.

    Attributes:
        names: the names of all G symbols.
        alphabet_size: A.
        root: the index of the start symbol.
        emissions: (G, A), the weights of X -> a; a terminal emits itself with weight 1.
        parents, lefts, rights, weights: (R,), the rules X -> Y Z, ordered by parent.
    """

    names: tuple[str, ...]
    alphabet_size: int
    root: int
    emissions: FloatArray
    parents: IndexArray
    lefts: IndexArray
    rights: IndexArray
    weights: FloatArray


def _parts(right: tuple[str, ...], terminals: frozenset[str]) -> list[tuple[str, ...]]:
    """Split a right-hand side of more than two symbols so that parsing has to try few split points.

    Terminals at both ends are split off, which needs no search. A terminal at one end stays with its neighbour, so that
    this part is possible only where that terminal occurs.
    """
    first, last = right[0] in terminals, right[-1] in terminals
    if first and last and len(right) > 3:
        return [right[:1], right[1:-1], right[-1:]]
    cut = 2 if first and not last else len(right) - 2 if last and not first else 1
    return [right[:cut], right[cut:]]


def binarize(rules: Iterable[Rule], alphabet: Iterable[str]) -> Iterator[Rule]:
    """Split right-hand sides until none has more than two symbols; equal parts share one new nonterminal."""
    terminals, names, pending = frozenset(alphabet), dict[tuple[str, ...], str](), list(rules)
    taken = {*terminals, *(each.left for each in pending)}
    while pending:
        each = pending.pop()
        if len(each.right) <= 2:
            yield each
            continue
        parts = _parts(each.right, terminals)
        new = [part for part in dict.fromkeys(parts) if len(part) > 1 and part not in names]
        names |= {part: _new_name(part, taken) for part in new}
        pending.append(each._replace(right=tuple(names.get(part, part[0]) for part in parts)))
        pending += [Rule(names[part], part, Fraction(1)) for part in new]


def _new_name(part: tuple[str, ...], taken: set[str]) -> str:
    """Return a name for a part, and add it to those that are taken."""
    name = f"<{' '.join(part)}>"
    while name in taken:  # symbols such as "<a" may spell the name of another part
        name = f"<{name}>"
    taken.add(name)
    return name


def binary_rules(grammar: Grammar) -> BinaryRules:
    """Convert a grammar without empty and unary rules to arrays.

    Raises:
        ValueError: a weight is below the normal numbers of float64.
    """
    rules = list(binarize(grammar.rules, grammar.alphabet))
    names = (*grammar.alphabet, *sorted({each.left for each in rules}))
    index_of = {name: index for index, name in enumerate(names)}
    emissions = np.eye(len(names), len(grammar.alphabet))
    pairs = []
    for left, right, weight in rules:
        if len(right) == 1:
            emissions[index_of[left], index_of[right[0]]] += rounded(weight)
        else:
            pairs.append((index_of[left], index_of[right[0]], index_of[right[1]], rounded(weight)))
    pairs.sort()
    parents, lefts, rights = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in range(3))
    weights = np.array([pair[3] for pair in pairs], dtype=np.float64)
    return BinaryRules(
        names, len(grammar.alphabet), index_of[grammar.start], emissions, parents, lefts, rights, weights
    )


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
    """
    log_inside = np.full((len(rules.names), max_length + 1), -np.inf)
    layers = []
    for size in range(1, max_length + 1):
        layer = _terminal_layer(rules) if size == 1 else _pair_layer(rules, log_inside, size)
        np.logaddexp.at(log_inside[:, size], layer.parents, layer.log_weights)
        layers.append(layer)
    return LengthTable(rules, log_inside, _concatenate(layers, log_inside))


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
