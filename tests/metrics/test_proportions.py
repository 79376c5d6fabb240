"""At the ends of Wilson's interval the observed proportion is 1.96 standard deviations from the true one."""

import math

import pytest

from structattn.metrics.proportions import wilson_interval


@pytest.mark.parametrize(("right", "trials"), [(0, 1), (1, 1), (0, 40), (13, 40), (40, 40), (999, 2000)])
def test_the_ends_satisfy_the_definition(right, trials):
    found = wilson_interval([True] * right + [False] * (trials - right))
    assert (found.trials, found.right, found.value) == (trials, right, right / trials)
    assert 0 <= found.least <= found.value <= found.most <= 1
    for end in (found.least, found.most):
        deviation = 1.959964 * math.sqrt(end * (1 - end) / trials)
        assert abs(found.value - end) == pytest.approx(deviation, abs=1e-6)
    assert found.least < found.value or right == 0
    assert found.value < found.most or right == trials


def test_a_known_interval():
    found = wilson_interval([True] * 8 + [False] * 2)
    assert (found.least, found.most) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


def test_no_outcomes_are_refused():
    with pytest.raises(ValueError, match="expected at least one"):
        wilson_interval([])
