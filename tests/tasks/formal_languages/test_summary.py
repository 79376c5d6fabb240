"""The summary of a language from a file."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.language_files.language_file import parse_language_file
from structattn.tasks.formal_languages.summary import summarize


def summary(text, name="x.cfg", lengths=(1, 9)):
    file = parse_language_file(name, text, Path(name))
    language, possible = file.language, file.language.valid_lengths(*lengths)
    of_test = np.repeat(possible, 50)
    strings = language.sample_each(of_test, numpy_generator(1, "summary"))
    conditionals = language.log_probabilities(strings) - [language.log_length_probability(n) for n in of_test]
    return summarize(language, file.is_regular, {"train": possible[:2], "test": possible}, of_test, conditionals)


def test_all_of_a_language_that_is_understood():
    """The innermost pair is one of two with probability 1/2 each, each pair around it with 1/3 and 2/3."""
    assert summary("S -> a S b | c S d [1/2] | a b [1/8] | c d [1/8]") == {
        "alphabet": "4 symbols: a b c d",
        "grammar": "1 nonterminal, 4 rules; strings of 8 symbols on average",
        "lengths": "train: 2, 4; test: 2, 4, ..., 8 (4)",
        "entropy": SUMMARY_ENTROPY,
        "ambiguous": "no, as the grammar is LR(1)",
        "deterministic": "yes, as the grammar is LR(1)",
    }


SUMMARY_ENTROPY = "{:.4g} nats at length 2, {:.4g} at 6, {:.4g} at 8".format(
    *(math.log(2) + k * (-(math.log(1 / 3) / 3 + 2 * math.log(2 / 3) / 3)) for k in (0, 2, 3))
)


@pytest.mark.parametrize(
    ("text", "name", "ambiguous", "deterministic"),
    [
        ("P -> 0 P 0 [0.4] | 1 P 1 [0.4] | ε", "x.cfg", "no string of up to 20 symbols, by enumeration", "not decided"),
        ("E -> E '+' E [0.4] | n", "x.cfg", "yes: n + n + n has 2 derivations", "not decided"),
        ("S -> a S [0.5] | a T\nT -> b T | ε", "x.cfg", "no, as the grammar is LR(1)", "yes, as it is regular"),
        ("p a p\np a q\nq a q\nq", "x.fsa", "yes: a a has 2 derivations", "yes, as it is regular"),
        ("(a|b)* a", "x.regex", "no string of up to", "yes, as it is regular"),
        ("S -> A B [0.5] | a\nA -> ε | a\nB -> ε | b", "x.cfg", "yes: a has 2 derivations", "not decided"),
    ],
)
def test_ambiguity_and_determinism(text, name, ambiguous, deterministic):
    found = summary(text, name)
    assert found["ambiguous"].startswith(ambiguous)
    assert found["deterministic"] == deterministic


def test_an_estimated_entropy_is_near_that_of_all_strings():
    text = "S -> S S [0.3] | a | b"
    language = parse_language_file("x.cfg", text, Path("x.cfg")).language
    logs = language.log_probabilities(np.array(list(product((0, 1), repeat=7)))) - language.log_length_probability(7)
    entropy = -(np.exp(logs) * logs).sum()
    found = summary(text, lengths=(7, 7))["entropy"]
    value, error = map(float, found.split(" nats")[0].split(" ± "))
    assert abs(value - entropy) <= 4 * error + 1e-3
    most = language.derivation_entropy(7)
    assert found.endswith(f"estimated from the test strings; at most that of derivations: {most:.4g} nats at length 7")


def test_an_inconsistent_grammar_is_told():
    assert "inconsistent: strings have no expected length" in summary("%inconsistent\nS -> S S | a")["grammar"]


def test_lengths_without_a_common_step():
    assert summary("S -> a | a b | a b c d | a b c d e f")["lengths"] == "train: 1, 2; test: 4 from 1 to 6"


def test_many_symbols_are_cut():
    found = summary("S -> " + " | ".join(f"word{i}" for i in range(90)))["alphabet"]
    assert found.startswith("90 symbols: word0 word1 ")
    assert found.endswith(" ...")
