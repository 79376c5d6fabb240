"""What a sweep and its report read of a completed trial: from its run folder, or from a file with its results.

The file has some kilobytes and replaces a run folder with its weights: results can be committed, and a sweep can
continue on another machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from structattn.runs.checkpoint import DamagedCheckpointError, read_manifest, read_state_file
from structattn.runs.events import verified_events
from structattn.runs.folder import RunFolder
from structattn.runs.selection import best_update
from structattn.runs.state import Count
from structattn.runs.store import checkpoint_path, checkpoint_updates
from structattn.settings.budget import Budget, Unit
from structattn.settings.training import TrainingSettings
from structattn.support.errors import StructattnError
from structattn.support.files import create_folder
from structattn.support.json_files import read_json, write_json
from structattn.support.shapes import Shape, check_shape
from structattn.sweeps.analysis_scores import analysis_scores
from structattn.sweeps.trials import Trial
from structattn.training.progress import has_trained

_KIND: Final = "trial"
_FORMAT_VERSION: Final = 1

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


class _BudgetShape(Shape):
    count: Count
    unit: Unit


class _OutcomeShape(Shape):
    """The fields of a file that are read."""

    end: dict[str, Any] | None
    validations: list[dict[str, Any]]
    scores: dict[str, dict[str, Any]]
    analyses: dict[str, dict[str, float]]
    stopped: _BudgetShape | None = None


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


def outcome_path(folder: Path, trial: Trial) -> Path:
    """Return the path of the file with the results of a trial."""
    return folder / f"{trial.name}.json"


def write_outcome(folder: Path, trial: Trial, run_dir: Path, outcome: Outcome) -> None:
    """Write the outcome of a trial to ``FOLDER/DIGEST.json``, with its settings, version and hardware.

    Args:
        folder: created if missing.
        trial: the trial; its digest names the file.
        run_dir: its run folder.
        outcome: its outcome.
    """
    card = RunFolder(run_dir).read_card()
    create_folder(folder)
    content = {
        "format_version": _FORMAT_VERSION,
        "cell": trial.cell,
        "restart": trial.restart,
        "sampled": trial.sampled,
        "settings": trial.settings.model_dump(mode="json", exclude_defaults=True, exclude={"data"}),
        "prepare": None if trial.prepare is None else trial.prepare.model_dump(mode="json", exclude_defaults=True),
        **{name: card[name] for name in ("version", "environment", "hardware", "parameters")},
        "end": outcome.end,
        **({} if outcome.stopped is None else {"stopped": asdict(outcome.stopped)}),
        "validations": outcome.validations,
        "scores": outcome.scores,
        "analyses": outcome.analyses,
    }
    write_json(outcome_path(folder, trial), _KIND, content)


def read_outcome(folder: Path | None, trial: Trial) -> Outcome | None:
    """Read the outcome of a trial from its file; None if there is none.

    Raises:
        DataError: the file is damaged.
    """
    if folder is None or not (path := outcome_path(folder, trial)).exists():
        return None
    content = check_shape(_OutcomeShape, read_json(path, _KIND), path)
    stopped = None if content.get("stopped") is None else Budget(**content["stopped"])
    return Outcome(content["end"], content["validations"], content["scores"], content["analyses"], stopped)
