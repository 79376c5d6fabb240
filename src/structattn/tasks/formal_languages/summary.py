"""A summary of a language from a file, in sentences: what can be said of it without training anything."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.derivations import find_ambiguity
from structattn.tasks.formal_languages.expected_length import expected_length, has_expected_length
from structattn.tasks.formal_languages.grammar import Grammar
from structattn.tasks.formal_languages.length_table import FloatArray, IndexArray
from structattn.tasks.formal_languages.lr1 import is_lr1

SUMMARY: Final = "summary"
"""The entry of the header of a prepared folder that has the summary."""

_SHOWN: Final = 72  # characters of an alphabet


def summarize(
    language: ContextFreeLanguage,
    is_regular: bool,
    lengths: Mapping[str, list[int]],
    test_lengths: IndexArray,
    test_log_probabilities: FloatArray,
) -> dict[str, str]:
    """Return heading -> sentence.

    Args:
        language: the language.
        is_regular: whether it is known to be regular.
        lengths: split -> the lengths that its strings can have.
        test_lengths: of each test string, (N,).
        test_log_probabilities: log p(string | length) of each, (N,) in nats; they give estimates of entropies.
    """
    grammar = language.grammar
    unambiguous, ambiguity = _ambiguity(grammar)
    regular = is_regular or all(symbol not in grammar.rules_of for each in grammar.rules for symbol in each.right[:-1])
    deterministic = (
        "yes, as it is regular" if regular else "yes, as the grammar is LR(1)" if unambiguous else "not decided"
    )
    return {
        "alphabet": _alphabet(grammar.alphabet),
        "grammar": _grammar(grammar),
        "lengths": "; ".join(f"{split}: {_lengths(lengths[split])}" for split in ("train", "test")),
        "entropy": _entropy(language, unambiguous, test_lengths, test_log_probabilities),
        "ambiguous": ambiguity,
        "deterministic": deterministic,
    }


def _alphabet(symbols: tuple[str, ...]) -> str:
    listed = " ".join(symbols)
    return f"{_counted(len(symbols), 'symbol')}: {listed if len(listed) <= _SHOWN else listed[:_SHOWN] + ' ...'}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _grammar(grammar: Grammar) -> str:
    size = f"{_counted(len(grammar.rules_of), 'nonterminal')}, {_counted(len(grammar.rules), 'rule')}"
    if not has_expected_length(grammar):
        return f"{size}; inconsistent: strings have no expected length, only P(string | length) is meaningful"
    return f"{size}; strings of {expected_length(grammar):.4g} symbols on average"


def _lengths(possible: list[int]) -> str:
    """Return ranges with a common step, for example ``40, 42, ..., 80 (21)``; other lengths by their number."""
    if len(possible) < 4:
        return ", ".join(map(str, possible))
    steps = set(np.diff(possible).tolist())
    listed = f"{possible[0]}, {possible[1]}, ..., {possible[-1]}"
    return f"{listed} ({len(possible)})" if len(steps) == 1 else f"{len(possible)} from {possible[0]} to {possible[-1]}"


def _ambiguity(grammar: Grammar) -> tuple[bool, str]:
    """Return whether it is proven that each string has one derivation, and what is known."""
    if is_lr1(grammar):
        return True, "no, as the grammar is LR(1)"
    found = find_ambiguity(grammar)
    if found.example is not None:
        shown = " ".join(found.example) if found.example else "the empty string"
        return False, f"yes: {shown} has {found.num_derivations} derivations"
    if found.max_length < 0:
        return False, "not decided"
    return False, f"no string of up to {found.max_length} symbols, by enumeration; longer ones are not decided"


def _entropy(
    language: ContextFreeLanguage, unambiguous: bool, lengths: IndexArray, log_probabilities: FloatArray
) -> str:
    """Return the entropy, in nats, of strings of the least, a middle and the greatest length of the test set."""
    possible = np.unique(lengths)
    chosen = sorted({int(possible[index]) for index in (0, len(possible) // 2, -1)})
    of_derivations = _listed({length: f"{language.derivation_entropy(length):.4g}" for length in chosen})
    if unambiguous:
        return of_derivations
    estimates = _listed({length: _estimate(-log_probabilities[lengths == length]) for length in chosen})
    return f"{estimates}, estimated from the test strings; at most that of derivations: {of_derivations}"


def _estimate(values: FloatArray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.4g} ± {error:.2g}"


def _listed(values: Mapping[int, str]) -> str:
    first, *rest = values.items()
    return ", ".join([f"{first[1]} nats at length {first[0]}", *(f"{value} at {length}" for length, value in rest)])
