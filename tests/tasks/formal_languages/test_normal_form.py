"""Removing empty and unary rules preserves probabilities, except at the root in the reference variant."""

from fractions import Fraction

import pytest

from structattn.tasks.formal_languages.grammar import (
    ROOT,
    Grammar,
    empty_probabilities,
    normal_form,
    rule,
    unary_closure,
)
from structattn.tasks.formal_languages.registry import GRAMMARS

F = Fraction


def enumerated(judge, normal):
    """The normal form's rules, compared with enumeration in exact fractions."""
    rules = {ROOT: {}}
    for left, right, weight in normal.grammar.rules:
        rules.setdefault(left, {})[right] = weight
    return type(judge)(rules)


@pytest.mark.parametrize("length", [*range(8), *(pytest.param(length, marks=pytest.mark.slow) for length in (8, 9))])
def test_every_short_string_has_exactly_the_described_probability(name, variant, judge, length):
    normal = normal_form(GRAMMARS[name](), variant)
    expected = judge.all_strings(length)
    if length == 0:
        assert normal.empty == expected.get("", 0)
    else:
        assert enumerated(judge, normal).all_strings(length) == expected


def test_no_empty_and_no_unary_rule_is_left(name, variant):
    grammar = normal_form(GRAMMARS[name](), variant).grammar
    assert all(right and not (len(right) == 1 and right[0] in grammar.rules_of) for _, right, _ in grammar.rules)
    assert ROOT not in {symbol for each in grammar.rules for symbol in each.right}


def test_the_readings_differ_where_the_root_has_removed_rules(name):
    faithful, reference = (normal_form(GRAMMARS[name](), variant) for variant in ("faithful", "reference"))
    same = set(faithful.grammar.rules) == set(reference.grammar.rules)
    assert same == (name in {"marked-reversal", "hardest-cfl"})


def test_empty_probabilities_are_exact():
    rules = (rule("S", "A B", F(1, 2)), rule("S", "a", F(1, 2)), rule("A", "", F(1, 3)), rule("A", "a", F(2, 3)))
    grammar = Grammar("S", ("a",), (*rules, rule("B", "A A", F(3, 4)), rule("B", "S a", F(1, 4))))
    assert empty_probabilities(grammar) == {"A": F(1, 3), "B": F(1, 12), "S": F(1, 72)}


def test_a_nonterminal_that_is_always_empty_is_removed():
    grammar = Grammar("S", ("a",), (rule("S", "N a N", 1), rule("N", "", 1)))
    assert normal_form(grammar, "faithful").grammar.rules == (rule(ROOT, "a", 1),)


def test_unary_chains_multiply_and_add():
    rules = [rule("S", "A", F(1, 2)), rule("S", "B", F(1, 2)), rule("A", "B", F(1, 3)), rule("A", "a", F(2, 3))]
    grammar = Grammar("S", ("a", "b"), (*rules, rule("B", "b", 1)))
    assert unary_closure(grammar)["S"] == {"S": 1, "A": F(1, 2), "B": F(2, 3)}


@pytest.mark.parametrize("rules", [["A", "a"], ["A A", "", "a"]])
def test_cycles_are_rejected(rules):
    grammar = Grammar("S", ("a",), (rule("S", "A", 1), *(rule("A", right, F(1, len(rules))) for right in rules)))
    with pytest.raises(ValueError, match=r"cycle.*A -> A"):
        normal_form(grammar, "faithful")
