"""The result of a trial, and the validation by which trials are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from structattn.runs.ranking import best_updates
from structattn.sweeps.outcome import Event, Outcome, outcome_of_run
from structattn.sweeps.stored_outcome import read_outcome
from structattn.sweeps.trials import Trial


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial that has ended.

    Args:
        trial: the trial.
        score: validation score of the best checkpoint, lower is better, in nats per symbol: the difference from the
            lower bound if that is known, else the cross-entropy (also if BLEU selects the checkpoint).
        update: the update of that validation.
        outcome: all its scores.
    """

    trial: Trial
    score: float
    update: int
    outcome: Outcome


def read_trial_result(trial: Trial, run_dir: Path, trial_results: Path | None = None) -> TrialResult | None:
    """Read the result of a trial from its run folder or, without one, from its file; None if it has not ended.

    Args:
        trial: the trial.
        run_dir: its run folder.
        trial_results: the folder of the results of single trials, if any.
    """
    outcome = outcome_of_run(run_dir) or read_outcome(trial_results, trial)
    if outcome is None or outcome.end is None:
        return None
    best_update = outcome.end["best_update"]
    for event in reversed(outcome.validations):
        if event["update"] == best_update:
            return TrialResult(trial, validation_score(event), best_update, outcome)
    return None


def validation_score(event: Event) -> float:
    """Return the score of a validation: the difference from the lower bound if it is known, else the cross-entropy."""
    difference: float | None = event["cross_entropy_difference"]
    return float(event["cross_entropy"]) if difference is None else difference


def best_validation(validations: Sequence[Event]) -> Event | None:
    """Return the validation that selects the best checkpoint, the earlier one of equal ones; None if there is none."""
    updates = best_updates(validations, 1)
    return next((event for event in validations if event["update"] in updates), None)
