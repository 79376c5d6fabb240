"""Whether scores over seeds support an expected order."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from structattn.metrics.seeds import Seed, difference_over_seeds
from structattn.metrics.statistics import sample_statistics, wilson_interval

Verdict = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class Difference:
    """The difference of two mean scores, or of a mean score from a bound.

    Args:
        value: the difference.
        limits: the ends of its 95 % interval over seeds; None if one of the two has a single seed.
        pairs: the number of seeds that both have, in which they were compared in pairs; 0: not in pairs.
    """

    value: float
    limits: tuple[float, float] | None
    pairs: int = 0


@dataclass(frozen=True)
class Judgement:
    """What scores over seeds say of an expected order.

    Args:
        verdict: "holds" if the interval of the difference lies on the expected side, "fails" if it lies on the other;
            "undecided" otherwise, and if that is not so any more when one of the seeds is left out.
        difference: ours minus the other score or bound.
        reason: why it is undecided; empty otherwise.
        remark: what else has to be known of the scores; empty: nothing.
    """

    verdict: Verdict
    difference: Difference
    reason: str = ""
    remark: str = ""

    @property
    def texts(self) -> tuple[str, str]:
        """The difference with its interval, and the verdict with its reason and the remark."""
        limits = self.difference.limits
        interval = "" if limits is None else f" ({limits[0]:.4g} to {limits[1]:.4g})"
        verdict = ": ".join(filter(None, (self.verdict, self.reason)))
        return f"{self.difference.value:.4g}{interval}", "; ".join(filter(None, (verdict, self.remark)))


def mean_difference(ours: Mapping[Seed, float], other: Mapping[Seed, float] | float) -> Difference:
    """Return the difference of means: in pairs where seeds are shared (Student's t), else Welch's (1947)."""
    if not isinstance(other, Mapping):
        found = sample_statistics([*ours.values()])
        return _symmetric(found.mean - other, found.interval, 0)
    compared = difference_over_seeds(other, ours)
    return _symmetric(compared.mean, compared.interval, compared.pairs)


def share_difference(ours: Mapping[Seed, float], other: Mapping[Seed, float] | float) -> Difference:
    """Return the difference of shares, of scores that are 1 or 0: by Wilson's interval, or Newcombe's (1998) of two."""
    share = wilson_interval([bool(score) for score in ours.values()])
    if not isinstance(other, Mapping):
        return Difference(share.value - other, (share.lower - other, share.upper - other))
    second = wilson_interval([bool(score) for score in other.values()])
    value = share.value - second.value
    below = math.hypot(share.value - share.lower, second.upper - second.value)
    above = math.hypot(share.upper - share.value, second.value - second.lower)
    return Difference(value, (value - below, value + above))


def _symmetric(value: float, interval: float | None, pairs: int) -> Difference:
    return Difference(value, None if interval is None else (value - interval, value + interval), pairs)


def judge(
    ours: Mapping[Seed, float],
    other: Mapping[Seed, float] | float,
    *,
    above: bool,
    margin: float = 0.0,
    difference: Callable[[Mapping[Seed, float], Mapping[Seed, float] | float], Difference] = mean_difference,
) -> Judgement:
    """Judge whether our scores are above, or below, those of another model or a bound.

    Args:
        ours: seed -> score, at least one.
        other: seed -> score of the other model, at least one; or the bound.
        above: whether ours are expected to be higher.
        margin: by how much at least; below zero: by how much the order may be missed.
        difference: ``mean_difference``, or ``share_difference`` for scores that are 1 or 0.
    """
    found = difference(ours, other)
    least = margin if above else -margin
    verdict = _verdict(found, least, above)
    if verdict == "undecided":
        return Judgement(verdict, found, _reason(found, least))
    needed = []
    for seed in dict.fromkeys((*ours, *(other if isinstance(other, Mapping) else ()))):
        rest, others = _without(ours, seed), _without(other, seed) if isinstance(other, Mapping) else other
        if not rest or others == {} or _verdict(difference(rest, others), least, above) != verdict:
            needed.append(seed)
    return Judgement("undecided", found, _needs(verdict, needed)) if needed else Judgement(verdict, found)


def judge_number(ours: Mapping[Seed, float], published: float, rounding: float = 0.0) -> Judgement:
    """Judge whether a published number lies in the 95 % interval of our mean.

    Args:
        ours: seed -> score, at least one.
        published: the number as printed.
        rounding: half a unit of its last digit, by which the interval is widened.
    """
    found = mean_difference(ours, published)
    if found.limits is None:
        return Judgement("undecided", found, "one seed")
    verdict: Verdict = "holds" if _holds_zero(found, rounding) else "fails"
    needed = [
        seed
        for seed in ours
        if _holds_zero(mean_difference(_without(ours, seed), published), rounding) != (verdict == "holds")
    ]
    return Judgement("undecided", found, _needs(verdict, needed)) if needed else Judgement(verdict, found)


def _holds_zero(found: Difference, rounding: float) -> bool | None:
    return None if found.limits is None else found.limits[0] - rounding <= 0 <= found.limits[1] + rounding


def _verdict(found: Difference, least: float, above: bool) -> Verdict:
    if found.limits is None or found.limits[0] <= least <= found.limits[1]:
        return "undecided"
    return "holds" if (found.limits[0] > least) == above else "fails"


def _reason(found: Difference, least: float) -> str:
    return "one seed" if found.limits is None else f"the interval contains {least + 0:g}"


def _needs(verdict: Verdict, seeds: Sequence[Hashable]) -> str:
    """Name each seed without which the verdict is another one."""
    known = [str(seed) for seed in seeds if isinstance(seed, int)]
    if len(known) < len(seeds):
        return f"{verdict} no longer without one trial"
    named = " or ".join(filter(None, (", ".join(known[:-1]), known[-1])))
    return f"{verdict} no longer without seed {named}"


def _without(scores: Mapping[Seed, float], seed: Seed) -> dict[Seed, float]:
    return {each: score for each, score in scores.items() if each != seed}
