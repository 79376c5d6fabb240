"""Verdicts on constructed scores, with scipy's intervals."""

import numpy as np
import pytest

from structattn.metrics.verdicts import judge, judge_number, mean_difference, share_difference

stats = pytest.importorskip("scipy.stats", reason="scipy is not installed; pip install scipy")
BASE = {1: 1.0, 2: 2.0, 3: 4.0, 4: 8.0, 5: 16.0}


def shifted(by, noise=(0.0, 0.1, -0.1, 0.05, -0.05)):
    return {seed: score + by + each for (seed, score), each in zip(BASE.items(), noise, strict=True)}


@pytest.mark.parametrize(
    ("by", "above", "margin", "verdict"),
    [(1, True, 0, "holds"), (1, False, 0, "fails"), (-1, True, 0, "fails"), (-1, False, 0, "holds"),
     (1, True, 2, "fails"), (1, True, 1, "undecided"), (-1, True, -2, "holds"), (-1, False, 2, "fails"),
     (1, False, -2, "holds"), (0, True, 0, "undecided")],
)  # fmt: skip
def test_the_interval_of_the_difference_decides(by, above, margin, verdict):
    found = judge(shifted(by), BASE, above=above, margin=margin)
    assert found.verdict == verdict
    assert (found.reason == "") == (verdict != "undecided")


def test_shared_seeds_are_compared_in_pairs():
    """Unpaired, the spread of the seeds hides the difference."""
    paired, unpaired = (
        judge(shifted(1), BASE, above=True),
        judge({-k: v for k, v in shifted(1).items()}, BASE, above=True),
    )
    assert (paired.verdict, paired.difference.pairs) == ("holds", 5)
    assert (unpaired.verdict, unpaired.difference.pairs, unpaired.reason) == ("undecided", 0, "the interval contains 0")
    assert paired.difference.value == pytest.approx(unpaired.difference.value)
    differences = np.array([*shifted(1).values()]) - [*BASE.values()]
    assert paired.difference.limits == pytest.approx(stats.ttest_1samp(differences, 0).confidence_interval(0.95))


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        ({1: 5.0, 2: 5.1, 3: 4.9, 4: 4.2}, {1: 4.0, 2: 4.0, 3: 4.0, 4: 4.0}),
        ({1: 5.0, 2: 5.1, 3: 4.9, 4: 4.2}, 4.0),
    ],
)
def test_a_verdict_that_one_seed_makes_is_undecided(ours, other):
    """All four: 0.8 ± 0.65; without seed 2: 0.7 ± 1.08."""
    low, high = mean_difference(ours, other).limits
    assert low > 0
    found = judge(ours, other, above=True)
    assert (found.verdict, found.difference.limits) == ("undecided", (low, high))
    assert found.reason == "holds no longer without seed 1, 2 or 3"
    assert mean_difference({k: v for k, v in ours.items() if k != 1}, 4.0).limits[0] < 0


def test_one_seed_is_undecided_whatever_the_difference():
    for other in ({1: 1.0}, {2: 1.0}, 1.0):
        found = judge({1: 100.0}, other, above=True)
        assert (found.verdict, found.reason, found.difference.limits) == ("undecided", "one seed", None)
    assert judge({1: 100.0, 2: 100.1}, 0.0, above=True).reason == "holds no longer without seed 1 or 2"


def test_every_seed_that_a_verdict_needs_is_named():
    """Differences of 15, 10 and 8, the mean 11 ± 9.0; without any one of the three the interval contains 0."""
    scores = {1: 15.0, 2: 10.0, 3: 8.0}
    for above, verdict in ((True, "holds"), (False, "fails")):
        found = judge(scores, 0.0, above=above)
        assert (found.verdict, found.reason) == ("undecided", f"{verdict} no longer without seed 1, 2 or 3")
    assert judge({"a": 15.0, "b": 10.0, "c": 8.0}, 0.0, above=True).reason == "holds no longer without one trial"
    assert judge_number({1: 1.0, 2: 1.1, 3: 1.2, 4: 1.3}, 1.36).reason == "fails no longer without seed 1, 2 or 3"


def test_shares():
    """Newcombe (1998), table II, example (a): 56 of 70 and 48 of 80 differ by 0.2, interval 0.0524 to 0.3339."""
    first = {place: float(place < 56) for place in range(70)}
    second = {-1 - place: float(place < 48) for place in range(80)}
    found = judge(first, second, above=True, difference=share_difference)
    assert found.verdict == "holds"
    assert found.difference.limits == pytest.approx((0.0524, 0.3339), abs=5e-5)
    wilson = stats.binomtest(56, 70).proportion_ci(method="wilson")
    assert share_difference(first, 0.5).limits == pytest.approx((wilson.low - 0.5, wilson.high - 0.5))
    nine = {seed: float(seed > 0) for seed in range(10)}
    assert judge(nine, 0.9, above=True, difference=share_difference).verdict == "undecided"
    assert judge({0: 1.0, 1: 1.0, 2: 1.0}, 0.0, above=True, difference=share_difference).verdict == "holds"
    assert judge(dict.fromkeys(range(28), 1.0), 1.0, above=False, difference=share_difference).verdict == "undecided"


@pytest.mark.parametrize(
    ("scores", "published", "verdict"),
    [((1.0, 1.1, 1.2, 1.3), 1.12, "holds"), ((1.0, 1.1, 1.2, 1.3), 2.0, "fails"), ((1.0,), 1.0, "undecided"),
     ((1.0, 1.1), 1.05, "undecided"), ((1.0, 1.1, 1.2, 1.3), 1.36, "undecided"), ((0.54, 0.54, 0.54), 0.55, "fails")],
)  # fmt: skip
def test_a_published_number_lies_in_the_interval_or_does_not(scores, published, verdict):
    found = judge_number(dict(enumerate(scores)), published)
    assert found.verdict == verdict
    assert judge_number(dict(enumerate(scores)), published, rounding=5.0).verdict in (
        "undecided" if len(scores) < 3 else "holds",
    )
