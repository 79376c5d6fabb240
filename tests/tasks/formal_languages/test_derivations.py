"""Numbers of derivations, against closed forms."""

from fractions import Fraction
from itertools import islice
from math import comb

import pytest

from structattn.tasks.formal_languages import derivations
from structattn.tasks.formal_languages.derivations import derivation_counts, find_ambiguity
from structattn.tasks.formal_languages.grammar import Grammar, rule
from structattn.tasks.formal_languages.registry import GRAMMARS


def grammar(alphabet, *rules):
    made = [rule(left, right, Fraction(1)) for left, right in rules]
    return Grammar(made[0].left, tuple(alphabet), tuple(made))


BINARY = grammar("a", ("S", "S S"), ("S", "a"))


def test_binary_trees_are_counted_by_catalan_numbers():
    counts = [
        of_length.get(("a",) * length, 0) for length, of_length in enumerate(islice(derivation_counts(BINARY), 9))
    ]
    assert counts == [0, *(comb(2 * n, n) // (n + 1) for n in range(8))]


def test_empty_and_unary_rules_are_counted():
    """a a: the two a's are those of A B, A C, B C, and A alone twice; a: each of three letters, and by U."""
    letters = [(left, right) for left in "ABC" for right in ("a", "")]
    counts = derivation_counts(grammar("a", ("S", "A B C"), ("S", "U"), ("U", "V"), ("V", "a"), *letters))
    assert [of_length.get(("a",) * length, 0) for length, of_length in enumerate(islice(counts, 5))] == [1, 4, 3, 1, 0]


@pytest.mark.parametrize("name", GRAMMARS)
def test_strings_are_those_of_the_language(name, judge_of):
    for length, counts in enumerate(islice(derivation_counts(GRAMMARS[name]()), 7)):
        assert {"".join(string) for string in counts} == set(judge_of(name, "faithful").all_strings(length))


def test_the_first_ambiguous_string():
    found = find_ambiguity(BINARY)
    assert (found.max_length, found.example, found.num_derivations) == (3, ("a", "a", "a"), 2)
    padded = find_ambiguity(GRAMMARS["padded-reversal"]())
    assert (padded.example, padded.num_derivations) == ((), 2)


def test_what_is_not_counted_is_not_decided(monkeypatch):
    assert find_ambiguity(GRAMMARS["unmarked-reversal"]()).max_length == derivations.MAX_LENGTH
    monkeypatch.setattr(derivations, "MAX_PRODUCTS", 100)
    found = find_ambiguity(GRAMMARS["unmarked-reversal"]())
    assert found.example is None
    assert 0 < found.max_length < derivations.MAX_LENGTH
    monkeypatch.setattr(derivations, "MAX_PRODUCTS", 0)
    assert find_ambiguity(GRAMMARS["marked-reversal"]()).max_length <= 0
