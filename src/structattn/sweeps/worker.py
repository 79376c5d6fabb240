"""The jobs of a sweep in its folder: prepare a trial's data, train it, evaluate it. Every step resumes."""

import traceback
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import process_time
from typing import Literal

import torch

from structattn.loading.evaluate import evaluate, is_scored
from structattn.runs.folder import SWEEP_SETTINGS, RunFolder, check_same_settings
from structattn.runs.store import scores_path
from structattn.settings.training import Budget
from structattn.support.environment import is_out_of_memory
from structattn.support.errors import Interrupted, LockedError, SettingsError, StructattnError, described
from structattn.support.files import create_folder_unflushed, flush_names, flush_to_disk, require_own_folder
from structattn.support.json_files import Shape, check_shape, parse_object
from structattn.support.locks import exclusive_lock
from structattn.support.progress import progress_in_worker
from structattn.support.reading import content_of
from structattn.sweeps.data_preparation import prepare_data, write_sources
from structattn.sweeps.outcome import Outcome, TrialResult, outcome_after, outcome_of_run, trial_result
from structattn.sweeps.trials import Cell, Trial
from structattn.sweeps.trials_file import read_outcome, require_same_data, store_outcome
from structattn.tasks.position_limits import require_positions_fit
from structattn.text.folders.prepared import open_prepared
from structattn.training.distributed import LostProcessError
from structattn.training.run_training import train


@dataclass(frozen=True)
class Job:
    """A trial to train and evaluate.

    Args:
        splits: the splits to evaluate after training.
        trial_results: the file of trials to which the results are written at the end, if any.
        pause_after: train no further; None: to the end.
        all_splits: the splits that this or a later job evaluates, which the data must have.
    """

    trial: Trial
    run_dir: Path
    splits: tuple[str, ...] = ()
    trial_results: Path | None = None
    pause_after: Budget | None = None
    all_splits: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Args:
        outcome: ``done``; ``failed``, with an error that would occur again; ``busy``, the run folder is locked by
            another process; ``interrupted``, by a signal; ``crashed``, the worker process died or ran out of memory.
        message: the error message.
    """

    outcome: Literal["done", "failed", "busy", "interrupted", "crashed"]
    message: str = ""


def run_job(job: Job) -> JobResult:
    """Run a job in this process, with one thread unless its settings give another number."""
    torch.set_num_threads(job.trial.settings.training.num_threads or 1)
    try:
        with progress_in_worker(job.trial.title):
            _train_and_evaluate(job)
    except Interrupted as error:
        return JobResult("interrupted", str(error))
    except LockedError as error:
        return JobResult("busy", str(error))
    except StructattnError as error:
        return JobResult("crashed" if isinstance(error, LostProcessError) else "failed", str(error))
    except Exception as error:  # of any kind: the other trials continue, and it is reported at the end
        return _failed(error)
    return JobResult("done")


def _failed(error: Exception) -> JobResult:
    if is_out_of_memory(error):  # other jobs may have used the memory, so a retry can succeed
        return JobResult("crashed", f"out of memory: {error}")
    if isinstance(error, OSError):
        return JobResult("failed", described(error))
    return JobResult("failed", traceback.format_exc())


def _train_and_evaluate(job: Job) -> None:
    prepare_trial_data(job.trial)
    _require_evaluable(job)
    if job.trial_results is not None:
        require_same_data(job.trial_results, job.trial)
    has_cost, before = _is_trained_here(job), process_time()
    train(job.trial.settings, job.run_dir, resume="auto", torchrun=False, pause_after=job.pause_after)
    cpu_seconds = process_time() - before if has_cost else None
    for split in job.splits:
        if not is_scored(job.run_dir, split):
            evaluate(job.run_dir, split, data=job.trial.settings.data)  # the sweep may have been moved
    _record_outcome(job, cpu_seconds)
    flush_names_of(job)


def _require_evaluable(job: Job) -> None:
    """Check before the training of a job that its run can be evaluated.

    Raises:
        StructattnError: the data lack a split, or have an example that is longer than the model has positions.
    """
    prepared = open_prepared(job.trial.settings.data)
    for split in job.all_splits:
        prepared.split(split)
    require_positions_fit(job.trial.settings, prepared, job.all_splits)


def _is_trained_here(job: Job) -> bool:
    """Return whether this process will do the whole training: the time of a part of it would be no cost."""
    training = job.trial.settings.training
    return training.devices * training.nodes == 1 and not RunFolder(job.run_dir).has_run()


def _record_outcome(job: Job, cpu_seconds: float | None) -> None:
    """Write the results of a run that has come as far as its job says to the file of trials, if there is one.

    Raises:
        SettingsError: the run is paused before its first validation.
    """
    outcome = outcome_of(job)
    if outcome is not None and job.pause_after is not None and not outcome.validations_within(job.pause_after):
        raise SettingsError(
            f"{job.run_dir}: no validation within {job.pause_after}, by which trials are compared; expected a smaller "
            "training.validate_every, or a later rung in halving.after"
        )
    if outcome is not None and job.trial_results is not None:
        store_outcome(job.trial_results, job.trial, job.run_dir, outcome, cpu_seconds)


def flush_names_of(job: Job) -> None:
    """Flush the names of a job's data, run and scores to disk: a worker may have been killed before it did so."""
    scores = [scores_path(job.run_dir, split) for split in job.splits]
    of_run = (job.trial.settings.data, RunFolder(job.run_dir).card, *scores) if job.run_dir.exists() else ()
    for path in (*of_run, *([] if job.trial_results is None else [job.trial_results])):
        flush_names(path)


def prepare_trial_data(trial: Trial) -> None:
    """Prepare the data of a trial unless they exist; the lock lets one of several workers do it."""
    folder = trial.settings.data
    if trial.prepare is None or folder.exists():
        return
    create_folder_unflushed(folder.parent)  # its name is flushed with that of the data
    with exclusive_lock(folder.with_suffix(".lock"), "preparation"):
        if not folder.exists():
            write_sources(trial)
            prepare_data(folder, trial.prepare)


class _ListedTrial(Shape):
    """The fields of a trial in ``trials.json`` that are read."""

    cell: Cell
    restart: int
    sampled: dict[str, float]


class SweepFolder:
    """The paths of a sweep's folder."""

    def __init__(self, path: Path, trial_results: str | PathLike[str] | None = None) -> None:
        self.path = path
        self.trial_results = None if trial_results is None else Path(trial_results).absolute()
        self.settings = path / SWEEP_SETTINGS
        self.runs = path / "runs"
        self.table = path / "table.json"
        self.index = path / "trials.json"
        self.failed = path / "failed.json"
        self.added = path / "added"
        self.lock = path / "lock"

    def require_sweep_or_nothing(self) -> None:
        """Refuse a folder with something else than a sweep, say prepared data.

        Raises:
            StructattnError: it has files of others, or is a file.
        """
        if self.settings.exists():
            return
        begun = [self.runs.name, self.lock.name]  # of a sweep that was killed before it had settings
        if self.added.is_dir():  # runs that an earlier version added before the sweep began
            begun += [self.added.name, "data"]
        written = (self.settings.name, self.index.name)
        require_own_folder(self.path, begun, written, "a new or empty folder or a sweep's")

    def listed(self, cell: Cell) -> list[tuple[str, dict[str, float]]]:
        """Return names and sampled values of the trials of a cell in ``trials.json``, in order; none without the file.

        Raises:
            DataError: the file is damaged; without it, values are proposed anew.
        """
        index = parse_object(content_of(self.index), self.index) if self.index.exists() else {}
        trials = [(name, check_shape(_ListedTrial, each, self.index)) for name, each in index.items()]
        of_cell = sorted((each["restart"], name, each["sampled"]) for name, each in trials if each["cell"] == cell)
        return [(name, values) for _, name, values in of_cell]

    def run_dir(self, trial: Trial) -> Path:
        """Return the run folder of a trial."""
        return self.runs / trial.name

    def job(
        self,
        trial: Trial,
        splits: tuple[str, ...] = (),
        pause_after: Budget | None = None,
        all_splits: tuple[str, ...] = (),
    ) -> Job:
        """Return the job of a trial."""
        return Job(trial, self.run_dir(trial), splits, self.trial_results, pause_after, all_splits)

    def result(self, trial: Trial) -> TrialResult | None:
        """Read the result of a trial; None if it has not ended."""
        return result_of(self.job(trial))

    def outcome_after(self, trial: Trial, budget: Budget) -> Outcome | None:
        """Read the outcome of a trial that has been trained for a budget, or has ended; None if it was not."""
        stored = read_outcome(self.trial_results, trial)
        return outcome_of(self.job(trial, pause_after=budget)) or (
            stored if stored is not None and stored.reaches(budget) else None
        )


def outcome_of(job: Job) -> Outcome | None:
    """Read the outcome of a job from its run folder; None if the run has not come as far as the job says."""
    if job.pause_after is None:
        return outcome_of_run(job.run_dir)
    return outcome_after(job.run_dir, job.trial.settings.training, job.pause_after)


def result_of(job: Job) -> TrialResult | None:
    """Read the result of a trial from its run folder or, without one, from the file of trials.

    None if the trial has not ended.
    """
    outcome = outcome_of_run(job.run_dir) or read_outcome(job.trial_results, job.trial)
    return None if outcome is None else trial_result(job.trial, outcome)


def is_done(job: Job) -> bool:
    """Return whether a job's run has come as far as it says and is evaluated, and its stored results are up to date.

    Raises:
        CheckpointError: the run folder has other settings, because a default has changed.
    """
    stored, outcome = read_outcome(job.trial_results, job.trial), outcome_of(job)
    if outcome is None:
        return stored is not None and _suffices(stored, job)
    check_same_settings(RunFolder(job.run_dir), job.trial.settings)
    is_evaluated = _suffices(outcome, job) and all(is_scored(job.run_dir, split) for split in job.splits)
    if job.trial_results is None or not is_evaluated:
        return is_evaluated
    return stored is not None and (stored.reaches(job.pause_after) if job.pause_after else stored.contains(outcome))


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
