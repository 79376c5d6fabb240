"""At the ends of Wilson's interval the observed proportion is 1.96 standard deviations from the true one."""

import math

import pytest

from structattn.metrics.statistics import wilson_interval


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 40), (13, 40), (10, 10), (40, 40), (999, 2000)])
def test_the_ends_satisfy_the_definition(successes, trials):
    found = wilson_interval([True] * successes + [False] * (trials - successes))
    assert (found.trials, found.successes, found.value) == (trials, successes, successes / trials)
    assert 0 <= found.lower <= found.value <= found.upper <= 1
    for end in (found.lower, found.upper):
        deviation = 1.959964 * math.sqrt(end * (1 - end) / trials)
        assert abs(found.value - end) == pytest.approx(deviation, abs=1e-6)
    assert found.lower < found.value or successes == 0
    assert found.value < found.upper or successes == trials


def test_a_known_interval():
    found = wilson_interval([True] * 8 + [False] * 2)
    assert (found.lower, found.upper) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


def test_no_outcomes_are_rejected():
    with pytest.raises(ValueError, match="expected at least one"):
        wilson_interval([])
