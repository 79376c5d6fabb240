"""Binarized grammars as arrays, with integer symbols."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from structattn.tasks.formal_languages.grammar import Grammar, Rule

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
    terminals, known = frozenset(alphabet), set[tuple[str, ...]]()
    pending = list(rules)
    while pending:
        each = pending.pop()
        if len(each.right) <= 2:
            yield each
            continue
        parts = _parts(each.right, terminals)
        pending.append(Rule(each.left, tuple(_name(part) for part in parts), each.weight))
        for part in parts:
            if len(part) > 1 and part not in known:
                known.add(part)
                pending.append(Rule(_name(part), part, Fraction(1)))


def _name(part: tuple[str, ...]) -> str:
    return part[0] if len(part) == 1 else f"<{' '.join(part)}>"


def binary_rules(grammar: Grammar) -> BinaryRules:
    """Convert a grammar without empty and unary rules to arrays."""
    rules = list(binarize(grammar.rules, grammar.alphabet))
    names = (*grammar.alphabet, *sorted({each.left for each in rules}))
    index_of = {name: index for index, name in enumerate(names)}
    emissions = np.eye(len(names), len(grammar.alphabet))
    pairs = []
    for left, right, weight in rules:
        if len(right) == 1:
            emissions[index_of[left], index_of[right[0]]] += float(weight)
        else:
            pairs.append((index_of[left], index_of[right[0]], index_of[right[1]], float(weight)))
    pairs.sort()
    parents, lefts, rights = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in range(3))
    weights = np.array([pair[3] for pair in pairs], dtype=np.float64)
    return BinaryRules(
        names, len(grammar.alphabet), index_of[grammar.start], emissions, parents, lefts, rights, weights
    )
