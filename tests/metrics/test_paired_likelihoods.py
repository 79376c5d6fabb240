"""The paired bootstrap of cross-entropies: intervals cover, and p says what is chance."""

import numpy as np
import pytest

from structattn.metrics.paired_likelihoods import compare_cross_entropies


def drawn(seed, shift):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, 30, 400)
    difficulty = rng.gamma(4, 1, 400)
    first = tokens * difficulty + rng.normal(0, 1, 400)
    return first, tokens * (difficulty + shift) + rng.normal(0, 1, 400), tokens


def test_the_cross_entropies_are_those_of_the_whole_text():
    first, second, tokens = drawn(1, 0.1)
    found = compare_cross_entropies(first, second, tokens)
    assert found.first == pytest.approx(first.sum() / tokens.sum(), rel=1e-12)
    assert found.difference == pytest.approx((second.sum() - first.sum()) / tokens.sum(), rel=1e-9)
    assert found.examples == 400


def test_pairing_makes_the_interval_of_the_difference_much_shorter_than_those_of_the_models():
    found = compare_cross_entropies(*drawn(2, 0.1))
    assert found.upper - found.lower < 0.1 * (found.first_upper - found.first_lower)
    assert 0.08 < found.lower < found.upper < 0.12
    assert found.p < 0.01


def test_intervals_contain_the_difference_in_95_of_100_cases_and_chance_is_seldom_significant():
    cases = [compare_cross_entropies(*drawn(seed, 0.0), samples=200) for seed in range(300)]
    assert 0.91 <= np.mean([case.lower <= 0 <= case.upper for case in cases]) <= 0.98  # expected: 0.95 ± 0.0126
    assert np.mean([case.p < 0.05 for case in cases]) <= 0.09


def test_of_one_example_no_difference_is_significant():
    first, _, tokens = drawn(3, 0)
    assert compare_cross_entropies(first[:1], first[:1] + 1, tokens[:1]).p == 1


def test_equal_models_do_not_differ():
    first, _, tokens = drawn(3, 0)
    found = compare_cross_entropies(first, first, tokens)
    assert (found.difference, found.lower, found.upper, found.p) == (0, 0, 0, 1)
