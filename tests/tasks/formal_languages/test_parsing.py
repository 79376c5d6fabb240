"""Exact probabilities of strings, against enumeration and a naive recursion on the grammar."""

import math
from itertools import product

import numpy as np
import pytest

from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages import context_free as parsing
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, formal_language


def indices(language, string):
    return np.array([language.alphabet.index(symbol) for symbol in string], dtype=np.int64)


def text(language, string):
    return "".join(language.alphabet[index] for index in string)


@pytest.mark.parametrize("length", range(10))
def test_probabilities_of_all_short_strings(name, variant, judge, length):
    language, expected = formal_language(name, variant), judge.all_strings(length)
    found = language.log_probabilities([indices(language, string) for string in expected])
    np.testing.assert_allclose(found, [math.log(p) for p in expected.values()], rtol=1e-13)
    assert np.exp(found).sum() == pytest.approx(math.exp(language.log_length_probability(length)), rel=1e-12)


@pytest.mark.parametrize("shorter", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_all_other_short_strings_are_outside(name, variant, judge, shorter):
    language = formal_language(name, variant)
    length = (6 if len(language.alphabet) > 4 else 7 if len(language.alphabet) == 3 else 8) - shorter
    strings = list(product(range(len(language.alphabet)), repeat=length))
    found = language.log_probabilities(np.array(strings))
    inside = {text(language, string) for string, p in zip(strings, found, strict=True) if p > -math.inf}
    assert inside == set(judge.all_strings(length))


def test_probabilities_of_longer_strings(name, variant, judge):
    language = formal_language(name, variant)
    strings = language.sample_each(
        [*language.valid_lengths(27, 28), *language.valid_lengths(41, 42)], numpy_generator(5)
    )
    expected = [math.log(judge.probability(text(language, string))) for string in strings]
    np.testing.assert_allclose(language.log_probabilities(strings), expected, rtol=1e-12)


def test_strings_of_all_lengths_together_and_in_any_order(name, variant, monkeypatch):
    language, generator = formal_language(name, variant), numpy_generator(6, "mixed")
    lengths = [length for length in (0, 1, 2, 9, 10, 33, 34) if length in language.valid_lengths(0, 34)] * 2
    strings = language.sample_each(lengths, generator)
    expected = [language.log_probabilities([string])[0] for string in strings]
    np.testing.assert_allclose(language.log_probabilities(strings), expected, rtol=1e-13)
    np.testing.assert_allclose(language.log_probabilities(strings[::-1])[::-1], expected, rtol=1e-13)
    monkeypatch.setattr(parsing, "CHUNK_BYTES", 1)
    np.testing.assert_allclose(language.log_probabilities(strings), expected, rtol=1e-13)


@pytest.mark.parametrize(("name", "length"), [("marked-reversal", 2001), ("unmarked-reversal", 2000)])
def test_very_long_strings_do_not_underflow(name, length):
    language = formal_language(name)
    found = language.log_probabilities(language.sample(length, 1, numpy_generator(7, name)))
    expected = language.log_length_probability(length) - length // 2 * math.log(2)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_probability_below_the_smallest_float_is_computed():
    language = formal_language("hardest-cfl")
    strings = language.sample(240, 8, numpy_generator(8, "long"))
    found = language.log_probabilities(strings)
    assert found.min() < math.log(np.finfo(np.float64).smallest_subnormal) / 2
    error = found.std() / math.sqrt(len(found)) * 4
    expected = language.log_length_probability(240) - language.derivation_entropy(240)
    assert expected - error < found.mean() < expected + error + 10


def test_underflow_is_an_error_and_not_probability_zero():
    language = formal_language("hardest-cfl")
    decoy = indices(language, "(" * 500 + ",$(),;")
    with pytest.raises(ValueError, match="a string of up to 506 symbols"):
        language.log_probabilities([decoy])
    short = indices(language, "(" * 100 + ",$(),;")
    usual = language.log_length_probability(6) - math.log(2)
    expected = usual + 100 * math.log(1 / 3 / 5)
    assert language.log_probabilities([short])[0] == pytest.approx(expected, rel=1e-12)


def test_no_strings_and_the_empty_string(name, variant, judge):
    language = formal_language(name, variant)
    assert language.log_probabilities([]).shape == (0,)
    empty = float(judge.all_strings(0).get("", 0))
    assert np.exp(language.log_probabilities([np.array([])]))[0] == pytest.approx(empty)


def test_progress_is_reported(monkeypatch):
    monkeypatch.setattr(parsing, "CHUNK_BYTES", 10_000)
    language, told = formal_language("dyck"), []
    language.log_probabilities(language.sample(20, 7, numpy_generator(9)), told.append)
    assert sum(told) == 7
    assert len(told) > 1


@pytest.mark.parametrize("language", FORMAL_LANGUAGES)
@pytest.mark.parametrize(
    ("string", "complaint"),
    [
        ([0, 9, 1], r"string 1 holds 9; expected 0 to \d"),
        ([-1], r"string 1 holds -1"),
        ([0.0, 1.0], r"string 1 is float64"),
        ([[0], [1]], r"of shape \(2, 1\)"),
    ],
)
def test_invalid_strings_are_rejected(language, string, complaint):
    with pytest.raises(ValueError, match=complaint):
        formal_language(language).log_probabilities([np.array([0, 1]), np.array(string)])


def root_loss(language_name, length, string):
    """The probability, given the length, that the faithful root uses a rule that the reference variant removed."""
    faithful, reference = (formal_language(language_name, variant) for variant in ("faithful", "reference"))
    logs = [
        language.log_probabilities([indices(language, string)])[0] - language.log_length_probability(length)
        for language in (faithful, reference)
    ]
    return 1 - math.exp(logs[0] - logs[1])


@pytest.mark.parametrize(("length", "mass"), [(40, 0.798), (60, 0.780), (80, 0.771)])
def test_the_mass_of_dyck_strings_that_are_one_outer_pair(length, mass):
    two_pairs = "()" + "[" * (length // 2 - 1) + "]" * (length // 2 - 1)
    assert root_loss("dyck", length, two_pairs) == pytest.approx(mass, abs=5e-4)


@pytest.mark.parametrize(("length", "mass"), [(40, 0.028), (60, 0.014), (80, 0.008)])
def test_the_mass_of_padded_reversals_that_are_only_padding(length, mass):
    string = "01" + "1" * (length - 4) + "10"
    assert root_loss("padded-reversal", length, string) == pytest.approx(mass, abs=5e-4)


def test_one_outer_pair_is_not_in_the_reference_reading():
    language = formal_language("dyck", "reference")
    assert language.log_probabilities([indices(language, "([])")])[0] == -math.inf
    assert language.log_probabilities([indices(language, "()[]")])[0] > -math.inf
