"""Run a sweep: train all trials, evaluate the selected ones, write the results table."""

import json
from collections.abc import Callable
from pathlib import Path

from structattn.evaluation.run_evaluation import is_scored
from structattn.runs.folder import RunFolder, check_same_settings
from structattn.settings.sweep import SweepSettings
from structattn.support.errors import Interrupted, StructattnError
from structattn.support.files import (
    create_folder_unflushed,
    flush_to_disk,
    remove_abandoned_folders,
    write_atomically,
    write_unflushed,
)
from structattn.support.locks import exclusive_lock
from structattn.sweeps.outcome import read_outcome
from structattn.sweeps.scheduler import Engine, SweepStatus, run_jobs
from structattn.sweeps.table import TableRow, TrialResult, read_trial_result, rows_to_json, select_best, table_rows
from structattn.sweeps.trials import Trial, make_trials
from structattn.sweeps.worker import Job, flush_names_of
from structattn.training.signals import StopRequested, stop_on_signals

StatusCallback = Callable[[SweepStatus], None]

_AFTER_SIGINT = (
    "the sweep stops when each running trial has saved a checkpoint; a second Ctrl-C ends it at once, and what the "
    "trials have learned since their last checkpoints is lost"
)


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

    def job(self, trial: Trial, splits: tuple[str, ...]) -> Job:
        """Return the job of a trial."""
        return Job(trial, self.run_dir(trial), splits, self.trial_results)

    def result(self, trial: Trial) -> TrialResult | None:
        """Read the result of a trial; None if it has not ended."""
        return read_trial_result(trial, self.run_dir(trial), self.trial_results)


def run_sweep(
    sweep: SweepSettings,
    path: Path,
    open_engine: Callable[[], Engine],
    on_status: StatusCallback,
    trial_results: Path | None = None,
) -> list[TableRow]:
    """Train all trials of a sweep, evaluate the selected ones, and write ``table.json``.

    The state is in the run folders alone: an interrupted sweep resumes when it is called again, with any engine, and
    trials that another sweep trained in the same folder are recognised by the digests of their settings.

    Args:
        sweep: the settings of the sweep.
        path: the sweep's folder; created if missing.
        open_engine: returns a new engine.
        on_status: called at every poll with the status of the jobs.
        trial_results: a folder of the results of single trials. Trials with a file there are not trained, and each
            that completes adds its own.

    Returns:
        One row for each cell of the grid.

    Raises:
        SettingsError: the settings of a trial are invalid; nothing was started.
        Interrupted: SIGTERM or SIGINT was received; the same call resumes the sweep.
        StructattnError: another process runs this sweep, or trials failed after all others have ended; each has a
            note in the error.
    """
    folder = SweepFolder(path.absolute(), trial_results)
    trials = make_trials(sweep, folder.path)
    create_folder_unflushed(folder.runs)  # each run flushes the names of its parents
    with exclusive_lock(folder.lock, "sweep"), stop_on_signals(after_sigint=_AFTER_SIGINT) as stop:
        if (folder.path / "data").is_dir():
            remove_abandoned_folders(folder.path / "data")
        write_unflushed(folder.settings, sweep.to_yaml())  # each start writes it again
        _write_index(folder, trials)
        try:
            failed = _train(sweep, folder, trials, open_engine, on_status, stop.check)
            results = read_results(folder, trials)
            failed += _evaluate_selected(sweep, folder, results, open_engine, on_status, stop.check)
        except StopRequested as request:
            raise Interrupted(f"{path}: {request}; run the same command again to resume") from None
        rows = table_rows(read_results(folder, trials))
        write_atomically(folder.table, json.dumps(rows_to_json(rows), indent=1) + "\n")
    if failed:
        error = StructattnError(f"{path}: {len(failed)} of {len(trials)} trials failed:")
        for job, message in failed:
            error.add_note(f"{job.trial.title} ({job.run_dir}): {message}")
        raise error
    return rows


def read_results(folder: SweepFolder, trials: list[Trial]) -> list[TrialResult]:
    """Return the results of the trials that have ended."""
    found = [folder.result(trial) for trial in trials]
    return [result for result in found if result is not None]


def _train(
    sweep: SweepSettings,
    folder: SweepFolder,
    trials: list[Trial],
    open_engine: Callable[[], Engine],
    on_status: StatusCallback,
    check: Callable[[], None],
) -> list[tuple[Job, str]]:
    splits = tuple(split for split, which in sweep.evaluate.items() if which == "all")
    jobs = [folder.job(trial, splits) for trial in trials]
    return _run(_unfinished(jobs), open_engine, on_status, check)


def _evaluate_selected(
    sweep: SweepSettings,
    folder: SweepFolder,
    results: list[TrialResult],
    open_engine: Callable[[], Engine],
    on_status: StatusCallback,
    check: Callable[[], None],
) -> list[tuple[Job, str]]:
    splits = tuple(sweep.evaluate)
    jobs = [folder.job(result.trial, splits) for result in select_best(results)]
    return _run(_unfinished(jobs), open_engine, on_status, check)


def _run(
    jobs: list[Job], open_engine: Callable[[], Engine], on_status: StatusCallback, check: Callable[[], None]
) -> list[tuple[Job, str]]:
    return run_jobs(open_engine(), jobs, on_status, check).failed if jobs else []


def _unfinished(jobs: list[Job]) -> list[Job]:
    """Return the jobs that are not done; flush the others."""
    unfinished = []
    for job in jobs:
        if _is_done(job):
            _flush(job)
        else:
            unfinished.append(job)
    return unfinished


def _flush(job: Job) -> None:
    """Flush what a killed worker may have left unflushed of a job that is done."""
    if job.run_dir.exists():
        flush_to_disk(RunFolder(job.run_dir).events)
    flush_names_of(job)


def _is_done(job: Job) -> bool:
    """Whether a job's run has ended and is evaluated, and the stored results are those of the run.

    Raises:
        CheckpointError: the run folder has other settings, because a default has changed.
    """
    stored = read_outcome(job.trial_results, job.trial)
    if not job.run_dir.exists():
        return stored is not None and set(job.splits) <= set(stored.scores)
    result = read_trial_result(job.trial, job.run_dir)
    if result is None:
        return False
    check_same_settings(RunFolder(job.run_dir), job.trial.settings)
    up_to_date = job.trial_results is None or stored == result.outcome
    return up_to_date and all(is_scored(job.run_dir, split) for split in job.splits)


def _write_index(folder: SweepFolder, trials: list[Trial]) -> None:
    """Write ``trials.json``, which maps run folders to cells."""
    index = {
        trial.name: {
            "cell": trial.cell,
            "restart": trial.restart,
            "sampled": trial.sampled,
            "data": str(trial.settings.data),
        }
        for trial in trials
    }
    write_atomically(folder.index, json.dumps(index, indent=1) + "\n")
