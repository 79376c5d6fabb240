"""What a reader of several runs' scores should know: unequal training, and models worse than n-grams."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from structattn.settings.training import TrainingSettings

FEWEST_EXAMPLES: Final = 30

Result = Mapping[str, Any]
Score = Mapping[str, Any]


def different_ends(results: Mapping[str, Result | None]) -> str | None:
    """Return a warning if runs ended for different reasons or after different numbers of updates; None if not.

    Early stopping ends each run at its own update, which is no reason for a warning.

    Args:
        results: run -> the result in its run card, None if it is in training.
    """
    ends = {(None, 0) if each is None else (each["reason"], each["update"]) for each in results.values()}
    if len(ends) < 2 or {reason for reason, _ in ends} == {"early_stopping"}:
        return None
    return "these runs were not trained equally long: " + "; ".join(
        f"{name} is in training" if each is None else f"{name} ended after {each['update']} updates ({_words(each)})"
        for name, each in results.items()
    )


def _words(result: Result) -> str:
    return str(result["reason"]).replace("_", " ")


def ended_in_warmup(training: TrainingSettings, update: int) -> str | None:
    """Return a warning if a run ended before its learning rate had reached its maximum; None if not."""
    steps = getattr(training.schedule, "warmup_steps", 0)
    if update >= steps:
        return None
    return (
        f"training ended after {update} of {steps} warm-up updates, before the learning rate had reached its maximum; "
        "for little data set fewer (training.schedule.warmup_steps) or train for longer (training.max_epochs)"
    )


def few_examples(count: int) -> str | None:
    """Return a warning if a bootstrap resamples too few examples for its intervals to mean anything; None if not."""
    if count >= FEWEST_EXAMPLES:
        return None
    return f"the split has {count} examples to resample, fewer than {FEWEST_EXAMPLES}: intervals and p are unreliable"


def worse_than_baselines(scores: Mapping[str, Mapping[str, Score]]) -> list[str]:
    """Return a warning for each run and split whose best n-gram baseline has a lower cross-entropy.

    Args:
        scores: run -> split -> scores.
    """
    each = ((run, split, score) for run, splits in scores.items() for split, score in splits.items())
    return [warning for run, split, score in each for warning in _worse(run, split, score)]


def _worse(run: str, split: str, score: Score) -> Iterator[str]:
    found = {name: each["cross_entropy"] for name, each in (score.get("baselines") or {}).items()}
    best = min(found, key=lambda name: found[name], default=None)
    if best is not None and found[best] < score["cross_entropy"]:
        yield (
            f"{run} is worse than the {best} baseline on {split}: cross-entropy {score['cross_entropy']:.4f}, "
            f"baseline {found[best]:.4f} nats per token"
        )
