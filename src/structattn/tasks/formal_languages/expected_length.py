"""The expected length of the strings of a grammar, as those of a branching process.

With M[X, Y] the expected number of Y on the right of a rule of X, derivations have an expected length if and only if
the spectral radius of M is below 1. Any x > 0 with M x < x proves that. The expected number of rules of the derivations
from each nonterminal, x = 1 + M x, is such an x.
"""

from fractions import Fraction

import numpy as np

from structattn.tasks.formal_languages.grammar import Grammar
from structattn.tasks.formal_languages.length_table import FloatArray


def expected_length(grammar: Grammar) -> float:
    """Return the expected number of symbols of a string, if it has one."""
    terminals = [
        float(sum(each.weight * sum(symbol not in grammar.rules_of for symbol in each.right) for each in rules))
        for rules in grammar.rules_of.values()
    ]
    return float(_solution(_means(grammar), np.array(terminals))[_indices(grammar)[grammar.start]])


def has_expected_length(grammar: Grammar) -> bool:
    """Return whether strings have an expected length; the proof is checked in exact arithmetic.

    Cost: O(nonterminals^3).
    """
    means, names = _means(grammar), tuple(grammar.rules_of)
    for group in _components(means):
        x = _solution(means[np.ix_(group, group)], np.ones(len(group)))
        if not (np.isfinite(x) & (x > 0)).all():
            return False
        values = {names[index]: Fraction(value) for index, value in zip(group, x.tolist(), strict=True)}
        for left, value in values.items():
            if (
                sum(rule.weight * sum(values.get(each, 0) for each in rule.right) for rule in grammar.rules_of[left])
                >= value
            ):
                return False
    return True


def fastest_growth(grammar: Grammar) -> tuple[list[str], float]:
    """Return the nonterminals that derive each other at the greatest rate, and the spectral radius of M among them."""
    means, names = _means(grammar), tuple(grammar.rules_of)
    components = _components(means)
    rates = [float(np.abs(np.linalg.eigvals(means[np.ix_(group, group)])).max()) for group in components]
    fastest = int(np.argmax(rates))
    return [names[index] for index in components[fastest]], rates[fastest]


def _components(means: FloatArray) -> list[tuple[int, ...]]:
    """Return the groups of nonterminals that derive each other; the spectral radius is the greatest of theirs."""
    reach = (means > 0) | np.eye(len(means), dtype=bool)
    for _ in range(len(means).bit_length()):
        reach = reach.astype(np.float32) @ reach.astype(np.float32) > 0
    return sorted({tuple(np.flatnonzero(row).tolist()) for row in reach & reach.T})


def _indices(grammar: Grammar) -> dict[str, int]:
    return {symbol: index for index, symbol in enumerate(grammar.rules_of)}


def _means(grammar: Grammar) -> FloatArray:
    index_of = _indices(grammar)
    means = np.zeros((len(index_of), len(index_of)))
    for left, right, weight in grammar.rules:
        for symbol in right:
            if symbol in index_of:
                means[index_of[left], index_of[symbol]] += float(weight)
    return means


def _solution(means: FloatArray, constant: FloatArray) -> FloatArray:
    """Solve x = constant + M x; NaN if there is no unique solution."""
    try:
        x: FloatArray = np.linalg.solve(np.eye(len(means)) - means, constant).astype(np.float64)
    except np.linalg.LinAlgError:
        return np.full(len(means), np.nan)
    return x
