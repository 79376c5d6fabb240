"""The folder of a sweep: its paths, and which of its jobs are done."""

from pathlib import Path

from structattn.loading.evaluate import is_scored
from structattn.runs.folder import RunFolder, check_same_settings
from structattn.settings.budget import Budget
from structattn.support.files import flush_to_disk
from structattn.sweeps.outcome import Outcome, outcome_after, outcome_of_run
from structattn.sweeps.stored_outcome import read_outcome
from structattn.sweeps.trial_result import TrialResult, read_trial_result
from structattn.sweeps.trials import Trial
from structattn.sweeps.worker import Job, flush_names_of


class SweepFolder:
    """The paths of a sweep's folder.

    Args:
        path: the folder.
        trial_results: the folder of the results of single trials, if any.
    """

    def __init__(self, path: Path, trial_results: Path | None = None) -> None:
        self.path = path
        self.trial_results = None if trial_results is None else trial_results.absolute()
        self.settings = path / "sweep.yaml"
        self.runs = path / "runs"
        self.table = path / "table.json"
        self.index = path / "trials.json"
        self.lock = path / "lock"

    def run_dir(self, trial: Trial) -> Path:
        """Return the run folder of a trial."""
        return self.runs / trial.name

    def job(self, trial: Trial, splits: tuple[str, ...] = (), pause_after: Budget | None = None) -> Job:
        """Return the job of a trial."""
        return Job(trial, self.run_dir(trial), splits, self.trial_results, pause_after)

    def result(self, trial: Trial) -> TrialResult | None:
        """Read the result of a trial; None if it has not ended."""
        return read_trial_result(trial, self.run_dir(trial), self.trial_results)

    def outcome_after(self, trial: Trial, budget: Budget) -> Outcome | None:
        """Read the outcome of a trial that has been trained for a budget, or has ended; None if it was not."""
        found = outcome_after(self.run_dir(trial), trial.settings.training, budget)
        stored = read_outcome(self.trial_results, trial)
        return found or (stored if stored is not None and stored.reaches(budget) else None)


def is_done(job: Job) -> bool:
    """Return whether a job's run has come as far as it says and is evaluated, and its stored results are up to date.

    Raises:
        CheckpointError: the run folder has other settings, because a default has changed.
    """
    stored, found = read_outcome(job.trial_results, job.trial), _outcome_of(job)
    if found is None:
        return stored is not None and _suffices(stored, job)
    check_same_settings(RunFolder(job.run_dir), job.trial.settings)
    if job.pause_after is None:
        is_stored = stored is not None and stored.contains(found)
    else:
        is_stored = stored is not None and stored.reaches(job.pause_after)
    is_evaluated = all(is_scored(job.run_dir, split) for split in job.splits)
    return _suffices(found, job) and is_evaluated and (job.trial_results is None or is_stored)


def _outcome_of(job: Job) -> Outcome | None:
    """Read the outcome of a job from its run folder; None if the run has not come as far as the job says."""
    if job.pause_after is None:
        return outcome_of_run(job.run_dir)
    return outcome_after(job.run_dir, job.trial.settings.training, job.pause_after)


def _suffices(outcome: Outcome, job: Job) -> bool:
    """Return whether a run has come as far as a job says, has a validation by which it is compared, and is scored."""
    budget = job.pause_after
    is_compared = budget is None or bool(outcome.validations_within(budget))
    return outcome.reaches(budget) and is_compared and set(job.splits) <= set(outcome.scores)


def flush(job: Job) -> None:
    """Flush what a killed worker may have left unflushed of a job that is done."""
    if RunFolder(job.run_dir).events.exists():
        flush_to_disk(RunFolder(job.run_dir).events)
    flush_names_of(job)
