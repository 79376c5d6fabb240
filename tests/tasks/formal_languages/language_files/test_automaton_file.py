"""Finite automata from files, against sums over all paths."""

import math
import tracemalloc
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from structattn.support.errors import DataError
from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages import context_free

F = Fraction
PARITY = """
# an even number of a's; the symbols are also names of states
0 0 1 [1/2]
0 1 0
0
1 0 0
1 1 1
"""
NONDETERMINISTIC = """
p a p [0.5]
p a q [0.25]
p ε r
q b q
q [0.5]
r 'b' q [1/3]
r [2/3]
"""
# state -> the (symbol, next state, weight) and the weight of the end
MEANT = {
    PARITY: ({"0": [("0", "1", F(1, 2)), ("1", "0", F(1, 4))], "1": [("0", "0", F(1, 2)), ("1", "1", F(1, 2))]},
             {"0": F(1, 4), "1": F(0)}),
    NONDETERMINISTIC: ({"p": [("a", "p", F(1, 2)), ("a", "q", F(1, 4)), ("", "r", F(1, 4))],
                        "q": [("b", "q", F(1, 2))], "r": [("b", "q", F(1, 3))]},
                       {"p": F(0), "q": F(1, 2), "r": F(2, 3)}),
}  # fmt: skip


def probability(meant, state, string):
    """The sum over all paths from a state."""
    transitions, ends = meant
    total = ends[state] if not string else F(0)
    for symbol, target, weight in transitions[state]:
        if string[: len(symbol)] == symbol:
            total += weight * probability(meant, target, string[len(symbol) :])
    return total


@pytest.mark.parametrize("text", MEANT, ids=["parity", "nondeterministic"])
def test_probabilities_are_sums_over_paths(text, language_of, ids_of):
    language, start = language_of("x.fsa", text), next(iter(MEANT[text][0]))
    for length in range(7):
        strings = ["".join(symbols) for symbols in product(language.alphabet, repeat=length)]
        expected = np.array([float(probability(MEANT[text], start, string)) for string in strings])
        found = np.exp(language.log_probabilities([ids_of(language, string) for string in strings]))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert math.exp(language.log_length_probability(length)) == pytest.approx(expected.sum(), rel=1e-12)


def test_memory_does_not_grow_with_the_number_of_strings(language_of, monkeypatch):
    text = "".join(f"{state} a {(state + 1) % 50} [0.9]\n{state} b {state}\n" for state in range(50)) + "0 [0.05]\n"
    language = language_of("x.fsa", text)
    strings = language.sample(60, 80, numpy_generator(1, "memory"))
    expected = language.log_probabilities(strings)
    monkeypatch.setattr(context_free, "CHUNK_BYTES", 1 << 21)
    tracemalloc.start()
    found = language.log_probabilities(strings)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert peak < 5 << 20


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "x.fsa: has no transitions; expected STATE SYMBOL STATE"),
        ("q a q\nq a", "x.fsa:2:1: found a line of another form; expected STATE SYMBOL STATE [WEIGHT]"),
        ("q a q p\nq", "x.fsa:1:1: found a line of another form"),
        ("q [1] a q", "x.fsa:1:1: found a line of another form"),
        ("[1]", "x.fsa:1:4: found a line of another form"),
        ("ε a q", "x.fsa:1:1: found a line of another form"),
        ("q a ''\nq", "x.fsa:1:1: found a line of another form"),
        ("q a p\nq", "x.fsa:1:5: state p has no transitions, and no string ends there"),
        ("q a p\nq\np a p", "x.fsa:3:1: state p derives no string"),
        ("q a q\nq\np a p\np", "x.fsa:3:1: state p does not occur in any derivation"),
        ("q a q [0.5]\nq [0.6]", "x.fsa:1:1: the weights of state q sum to 1.1"),
        ("q a q [0.5x]\nq [0.5]", "x.fsa:1:7: the weight is '0.5x'"),
        ("q ε p\np ε q\nq\np a p", "state q -> state p -> state q is a cycle that adds no symbol"),
        ("q a q\nq a q\nq", "x.fsa:2:1: state q has the same alternative already in line 1"),
        ("q", "x.fsa:1:1: the only string is empty"),
        ("q ( q\nq", None),
        ("q -> q\nq", None),
    ],
)
def test_messages_name_the_place(text, complaint, language_of):
    if complaint is None:
        assert language_of("x.fsa", text).valid_lengths(0, 2) == [0, 1, 2]
        return
    with pytest.raises(DataError) as caught:
        language_of("x.fsa", text)
    assert complaint in str(caught.value)
