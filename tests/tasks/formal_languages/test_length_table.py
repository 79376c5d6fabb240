"""The probability of lengths, against enumeration and closed forms."""

import math

import numpy as np
import pytest

from structattn.tasks.formal_languages.registry import formal_language


@pytest.mark.parametrize("length", range(10))
def test_the_probability_of_a_length_is_the_sum_over_its_strings(name, variant, judge, length):
    total = sum(judge.all_strings(length).values())
    expected = math.log(total) if total else -math.inf
    assert formal_language(name, variant).log_length_probability(length) == pytest.approx(expected, rel=1e-13)


def test_valid_lengths_are_those_with_strings(name, variant, judge):
    expected = [length for length in range(10) if judge.all_strings(length)]
    assert formal_language(name, variant).valid_lengths(0, 9) == expected


COUNTS = {
    "marked-reversal": (20, 30),
    "unmarked-reversal": (21, 31),
    "padded-reversal": (41, 61),
    "dyck": (21, 31),
    "hardest-cfl": (41, 61),
}


def test_the_papers_intervals_hold_as_many_lengths_as_published(name, variant):
    language = formal_language(name, variant)
    assert (len(language.valid_lengths(40, 80)), len(language.valid_lengths(40, 100))) == COUNTS[name]


def test_one_pair_of_brackets_is_not_in_the_reference_reading():
    assert formal_language("dyck", "reference").valid_lengths(0, 4) == [4]
    assert formal_language("dyck", "faithful").valid_lengths(0, 4) == [2, 4]
    assert formal_language("hardest-cfl").valid_lengths(0, 7) == [6, 7]


@pytest.mark.parametrize("length", [1, 21, 1001])
def test_the_length_of_a_marked_reversal_is_geometric(length):
    expected = (length - 1) / 2 * math.log(60 / 61) - math.log(61)
    assert formal_language("marked-reversal").log_length_probability(length) == pytest.approx(expected, rel=1e-12)


def test_results_do_not_depend_on_the_order_of_calls():
    asked_late, asked_first = formal_language("hardest-cfl"), formal_language("hardest-cfl")
    asked_late.log_length_probability(10)
    asked_late.log_length_probability(90)
    assert asked_late.log_length_probability(10) == asked_first.log_length_probability(10)
    assert asked_late.log_length_probability(90) == asked_first.log_length_probability(90)


@pytest.mark.parametrize("name", ["marked-reversal", "unmarked-reversal", "dyck"])
def test_the_derivation_entropy_is_that_of_the_strings_of_an_unambiguous_language(name, variant, judge_of):
    language = formal_language(name, variant)
    for length in language.valid_lengths(6, 9):
        probabilities = np.array([float(p) for p in judge_of(name, variant).all_strings(length).values()])
        shares = probabilities / probabilities.sum()
        assert language.derivation_entropy(length) == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-12)


@pytest.mark.parametrize("name", ["padded-reversal", "hardest-cfl"])
def test_the_derivation_entropy_is_above_that_of_the_strings_of_an_ambiguous_language(name, judge_of):
    probabilities = np.array([float(p) for p in judge_of(name, "faithful").all_strings(10).values()])
    shares = probabilities / probabilities.sum()
    excess = formal_language(name).derivation_entropy(10) + (shares * np.log(shares)).sum()
    assert 1e-4 < excess < 2


def test_impossible_lengths_are_rejected():
    language = formal_language("dyck")
    with pytest.raises(ValueError, match="length is -1"):
        language.log_length_probability(-1)
    with pytest.raises(ValueError, match="lengths 5 to 4"):
        language.valid_lengths(5, 4)
    with pytest.raises(ValueError, match=r"^dyck has no string of length 7"):
        language.derivation_entropy(7)
