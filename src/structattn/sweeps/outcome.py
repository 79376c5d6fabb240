"""What a sweep and its report read of a trial, and how it is read from the trial's run folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from structattn.runs.checkpoint import DamagedCheckpointError, read_manifest, read_state_file
from structattn.runs.events import verified_events
from structattn.runs.folder import RunFolder
from structattn.runs.selection import best_update
from structattn.runs.store import checkpoint_path, checkpoint_updates
from structattn.settings.budget import Budget
from structattn.settings.training import TrainingSettings
from structattn.support.errors import StructattnError
from structattn.support.json_files import read_json
from structattn.sweeps.analysis_scores import analysis_scores
from structattn.training.progress import has_trained

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The logged and evaluated scores of a run that has ended, or has been trained for a budget.

    Args:
        end: the event that ended the run; None if it has not ended.
        validations: the validation events, in order; those within the budget if the run has not ended.
        scores: split -> the scores that evaluation wrote.
        analyses: analysis, such as ``contrastive``, -> name -> score.
        stopped: the budget; None if the run has ended.
    """

    end: Event | None
    validations: Sequence[Event]
    scores: Mapping[str, Mapping[str, Any]]
    analyses: Mapping[str, Mapping[str, float]]
    stopped: Budget | None = None

    def reaches(self, budget: Budget | None) -> bool:
        """Return whether the run has been trained for a budget, or has ended; None: whether it has ended."""
        if self.stopped is None or budget is None:
            return self.end is not None
        return self.stopped.unit == budget.unit and self.stopped.count >= budget.count

    def contains(self, other: "Outcome") -> bool:
        """Return whether this is the same training, with all scores and analyses of another outcome, and maybe more."""
        same = (self.end, self.stopped, self.validations) == (other.end, other.stopped, other.validations)
        return same and self == self.joined(other)

    def joined(self, other: "Outcome") -> "Outcome":
        """Return this with the scores and analyses of another outcome of the same training, which replace its own."""
        scores, analyses = {**self.scores, **other.scores}, {**self.analyses, **other.analyses}
        return replace(self, scores=scores, analyses=analyses)

    def trained_within(self, budget: Budget) -> int:
        """Return how much of a budget the run has used."""
        used = budget.count if self.end is None else self.end[budget.unit.removesuffix("s")]
        return min(budget.count, int(used))

    def validations_within(self, budget: Budget) -> list[Event]:
        """Return the validation events of the first epochs or updates."""
        field = "epoch" if budget.unit == "epochs" else "update"
        return [event for event in self.validations if event[field] <= budget.count]


def outcome_of_run(run_dir: Path) -> Outcome | None:
    """Read the outcome of a run from its folder; None if the run has not ended."""
    run = RunFolder(run_dir)
    end = run.end_event()
    if end is None:
        return None
    scores = {path.stem: read_json(path, "scores") for path in sorted((run_dir / "scores").glob("*.json"))}
    return Outcome(end, verified_events(run, ["validation"]), scores, analysis_scores(run_dir))


def outcome_after(run_dir: Path, training: TrainingSettings, budget: Budget) -> Outcome | None:
    """Read the outcome of a run that has been trained for a budget, or has ended; None if it was not trained so far.

    It does not depend on later training, unless the run has ended.
    """
    run = RunFolder(run_dir)
    if (ended := outcome_of_run(run_dir)) is not None:
        return ended
    updates = checkpoint_updates(run.checkpoints)
    try:
        newest = checkpoint_path(run.checkpoints, max(updates, default=0))
        progress = read_state_file(newest, read_manifest(newest)).progress
    except DamagedCheckpointError:  # missing, too; training replaces it
        return None
    if not has_trained(progress, budget, training) or _update_in(run.best) != progress.best_update:
        return None  # a worker may have been killed before it named the best checkpoint; training does that first
    whole = Outcome(None, verified_events(run, ["validation"]), {}, {}, budget)
    return replace(whole, validations=whole.validations_within(budget))


def _update_in(best: Path) -> int | None:
    try:
        return best_update(best)
    except StructattnError:  # missing or damaged
        return None
