"""The lower bound: examples by hand, and closed forms for whole validation sets."""

import math

import numpy as np
import pytest

from structattn.metrics.statistics import lower_bound
from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.registry import formal_language


def test_hand_computed_examples():
    bound = lower_bound([math.log(0.5), math.log(0.25)], [3, 5], num_lengths=4)
    assert bound == pytest.approx((math.log(2) + math.log(4) + 2 * math.log(4)) / (4 + 6))
    assert lower_bound([0.0], [9], num_lengths=1) == 0


def test_a_string_outside_the_language_has_no_finite_bound():
    assert lower_bound([-1.0, -math.inf], [3, 3], 1) == math.inf


@pytest.mark.parametrize(
    ("conditionals", "lengths", "count", "complaint"),
    [
        ([], [], 1, "N >= 1"),
        ([-1.0], [1, 2], 1, "expected equal"),
        ([-1.0], [1], 0, "num_lengths is 0"),
        ([-1.0, 0.5], [1, 1], 1, "log-probability 1 is 0.5"),
        ([math.nan], [1], 1, "log-probability 0 is nan"),
        ([-1.0, -1.0, -1.0], [3, -1, -5], 1, "length 1 is -1; expected at least 0"),
    ],
)
def test_invalid_arguments_are_rejected(conditionals, lengths, count, complaint):
    with pytest.raises(ValueError, match=complaint):
        lower_bound(conditionals, lengths, count)


PUBLISHED = [
    ("marked-reversal", "faithful", 0.38432),
    ("unmarked-reversal", "faithful", 0.39080),
    ("dyck", "reference", 0.69305),
    ("dyck", "faithful", 0.68850),
]


@pytest.mark.parametrize(("name", "variant", "expected"), PUBLISHED)
def test_the_expected_validation_bound(name, variant, expected):
    language = formal_language(name, variant)
    lengths = language.valid_lengths(40, 80)
    entropies = [language.derivation_entropy(length) for length in lengths]
    assert lower_bound(-np.array(entropies), lengths, len(lengths)) == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize(("name", "variant", "expected"), PUBLISHED)
def test_the_bound_of_a_sampled_validation_set(name, variant, expected):
    language, generator = formal_language(name, variant), numpy_generator(3, "validation")
    lengths = np.repeat(language.valid_lengths(40, 80), 40)
    strings = language.sample_each(lengths, generator)
    of_length = np.array([language.log_length_probability(length) for length in lengths])
    conditionals = language.log_probabilities(strings) - of_length
    surprises = conditionals + [language.derivation_entropy(length) for length in lengths]
    error = surprises.std() * math.sqrt(len(lengths)) / (lengths + 1).sum()
    bound = lower_bound(conditionals, lengths, len(set(lengths.tolist())))
    assert bound == pytest.approx(expected, abs=4 * error + 5e-6)
    assert 4 * error < 0.012
