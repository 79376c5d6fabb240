"""Differences over seeds: Student's t of pairs, Welch's of independent runs."""

import math

import numpy as np
import pytest

from structattn.metrics.seeds import difference_over_seeds
from structattn.metrics.statistics import sample_statistics

stats = pytest.importorskip("scipy.stats", reason="scipy is not installed; pip install scipy")
BASE, OTHER = {1: 0.3, 2: 0.5, 3: 0.9, 4: 0.2}, {1: 0.1, 2: 0.45, 3: 0.6, 5: 0.7}


def test_shared_seeds_are_compared_in_pairs():
    differences = [OTHER[seed] - BASE[seed] for seed in (1, 2, 3)]
    found = difference_over_seeds(BASE, OTHER)
    low, _ = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (found.pairs, found.mean) == (3, pytest.approx(np.mean(differences)))
    assert found.interval == pytest.approx(found.mean - low, rel=1e-9)


def test_other_seeds_are_compared_as_independent_runs():
    """With equal variances the degrees of freedom are whole, and those of scipy are not rounded down."""
    first, second = {1: 0.0, 2: 1.0, 3: 2.0}, {4: 1.5, 5: 0.5, 6: 2.5}
    found = difference_over_seeds(first, second)
    test = stats.ttest_ind([*second.values()], [*first.values()], equal_var=False)
    low, _ = test.confidence_interval(0.95)
    assert (found.pairs, found.mean) == (0, pytest.approx(0.5))
    assert found.interval == pytest.approx(found.mean - low, rel=1e-6)


def test_rounded_degrees_of_freedom_give_wider_intervals():
    first, second = {1: 0.0, 2: 0.1, 3: 0.05}, {4: 1.5, 5: 0.5, 6: 2.5, 7: 9.0}
    found = difference_over_seeds(first, second)
    low, _ = stats.ttest_ind([*second.values()], [*first.values()], equal_var=False).confidence_interval(0.95)
    assert found.mean - low <= found.interval < 2 * (found.mean - low)


@pytest.mark.parametrize("sample", range(20))
def test_against_equal_scores_the_degrees_of_freedom_are_those_of_the_other_runs(sample):
    scores = np.random.default_rng(sample).random(8)
    found = difference_over_seeds(dict(enumerate(scores)), {100: 1.0, 101: 1.0})
    assert found.interval == pytest.approx(sample_statistics([*scores]).interval, rel=1e-9)


@pytest.mark.parametrize("second", [{1: 2.0}, {9: 2.0}])
def test_one_run_has_no_interval(second):
    found = difference_over_seeds({1: 1.0, 2: 1.0}, second)
    assert (found.mean, found.interval, found.pairs) == (1.0, None, 0)


def test_runs_without_spread():
    assert difference_over_seeds({1: 1.0, 2: 1.0}, {3: 2.0, 4: 2.0}).interval == 0.0


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_have_no_statistics(number):
    for numbers, place in (([number], 0), ([1.0, number], 1)):
        with pytest.raises(ValueError, match=rf"number {place} is {number}; expected finite numbers"):
            sample_statistics(numbers)
