"""LR(1) grammars: textbook cases, and grammars at random, none of whose strings may have two derivations."""

import random
from fractions import Fraction

import pytest

from structattn.tasks.formal_languages import derivations, lr1
from structattn.tasks.formal_languages.derivations import find_ambiguity
from structattn.tasks.formal_languages.grammar import Grammar, children_alone, deriving, rule
from structattn.tasks.formal_languages.lr1 import is_lr1


def grammar(*rules, alphabet=""):
    """The first left-hand side is the start; capitals are nonterminals."""
    pairs = [each.split("->") for each in rules]
    made = [rule(left.strip(), right, 1) for left, right in pairs]
    terminals = alphabet or sorted({symbol for each in made for symbol in each.right if not symbol.isupper()})
    return Grammar(made[0].left, tuple(terminals), tuple(made))


YES = [
    ["S -> a S b", "S -> a b"],
    ["S -> a S b", "S -> "],
    ["S -> C C", "C -> c C", "C -> d"],  # Aho et al., Compilers, example 4.54
    ["S -> L = R", "S -> R", "L -> * R", "L -> i", "R -> L"],  # example 4.48: not SLR(1)
    ["S -> a E a", "S -> b E b", "S -> a F b", "S -> b F a", "E -> e", "F -> e"],  # example 4.58: not LALR(1)
    ["S -> S T", "S -> T", "T -> l S r", "T -> l r"],
    ["S -> 0 S 0", "S -> 1 S 1", "S -> #"],
]
NO = [
    ["S -> a S a", "S -> b S b", "S -> "],  # not deterministic
    ["S -> S + S", "S -> n"],  # ambiguous
    ["S -> i S", "S -> i S e S", "S -> x"],  # the dangling else
    ["S -> A a b", "S -> B a c", "A -> x", "B -> x"],  # LR(2)
    ["S -> A", "S -> B", "A -> a", "B -> a"],
    ["S -> A A b", "A -> a", "A -> "],
]


@pytest.mark.parametrize("rules", YES)
def test_lr1(rules):
    assert is_lr1(grammar(*rules)) is True


@pytest.mark.parametrize("rules", NO)
def test_not_lr1(rules):
    assert is_lr1(grammar(*rules)) is False


def test_a_large_automaton_is_not_decided(monkeypatch):
    monkeypatch.setattr(lr1, "MAX_ITEMS", 10)
    assert is_lr1(grammar(*YES[4])) is None


def random_grammar(generator):
    symbols = "STab"
    rights = {left: {"".join(generator.choices(symbols, k=generator.randrange(4))) for _ in range(3)} for left in "ST"}
    rules = [rule(left, " ".join(right), Fraction(1)) for left in "ST" for right in sorted(rights[left])]
    return Grammar("S", ("a", "b"), tuple(rules))


def test_no_string_of_an_lr1_grammar_has_two_derivations(monkeypatch):
    monkeypatch.setattr(derivations, "MAX_PRODUCTS", 3000)
    decided = {True: 0, False: 0}
    for seed in range(600):
        drawn = random_grammar(random.Random(seed))
        if not deriving(drawn.rules, "ab") >= {"S", "T"} or has_cycle(drawn):
            continue
        decided[is_lr1(drawn)] += 1
        if is_lr1(drawn):
            assert find_ambiguity(drawn).example is None
    assert min(decided.values()) > 20


def has_cycle(drawn):
    children = children_alone(drawn)
    return any(left in children[left] for left in "ST") or ("T" in children["S"] and "S" in children["T"])
