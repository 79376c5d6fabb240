"""The five grammars equal their description; invalid grammars are rejected."""

from fractions import Fraction

import pytest

from structattn.tasks.formal_languages.grammar import Grammar, normalized, reachable, rule
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, GRAMMARS, continuing

F = Fraction


def renamed(grammar):
    """The rules with nonterminals numbered by first appearance from the start on; names do not matter."""
    order = [grammar.start]
    for left in order:
        for each in grammar.rules_of[left]:
            order += [symbol for symbol in each.right if symbol in grammar.rules_of and symbol not in order]
    number = {symbol: index for index, symbol in enumerate(order)}
    return {
        (number[left], tuple(number.get(symbol, symbol) for symbol in right), w) for left, right, w in grammar.rules
    }


def test_every_rule_is_the_described_one(name, judge_of):
    described = judge_of(name, "faithful")
    rules = tuple(
        rule(left, " ".join(right), w) for left, rights in described.rules.items() for right, w in rights.items()
    )
    assert renamed(GRAMMARS[name]()) == renamed(Grammar(described.start, GRAMMARS[name]().alphabet, rules))


def test_weights_sum_to_one(name):
    for rules in GRAMMARS[name]().rules_of.values():
        assert sum(each.weight for each in rules) == 1


def test_alphabets_and_names():
    assert {name: "".join(make().alphabet) for name, make in GRAMMARS.items()} == {
        "marked-reversal": "01#",
        "unmarked-reversal": "01",
        "padded-reversal": "01",
        "dyck": "()[]",
        "hardest-cfl": "()[],;$",
    }
    assert list(FORMAL_LANGUAGES)[:5] == list(GRAMMARS)


def test_a_repetition_has_the_given_mean():
    goes_on = continuing(F(3, 2))
    assert sum(count * goes_on**count * (1 - goes_on) for count in range(200)) == pytest.approx(1.5, abs=1e-9)


def test_weights_are_normalized_per_left_hand_side():
    rules = normalized([rule("A", "a", 3), rule("B", "b", 5), rule("A", "B", 1)])
    assert [each.weight for each in rules] == [F(3, 4), 1, F(1, 4)]


def test_unreachable_rules_are_dropped():
    rules = [rule("A", "B a", 1), rule("C", "B", 1), rule("B", "b", 1)]
    assert [each.left for each in reachable("A", rules)] == ["A", "B"]


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ([rule("A", "a", 1)], "start symbol 'S' has no rules"),
        ([rule("S", "a", 1), rule("a", "b", 1)], "'a' is a terminal"),
        ([rule("S", "a X", 1)], "S -> a X: a symbol"),
        ([rule("S", "a", 0)], "weight 0"),
    ],
)
def test_an_impossible_grammar_is_rejected(rules, complaint):
    with pytest.raises(ValueError, match=complaint):
        Grammar("S", ("a", "b"), tuple(rules))
