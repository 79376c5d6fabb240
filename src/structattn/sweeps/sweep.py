"""Run a sweep: train all trials, evaluate the selected ones, write the results table."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path

from structattn.settings.sweep import SweepSettings
from structattn.support.errors import Interrupted, StructattnError
from structattn.support.files import (
    create_folder_unflushed,
    remove_file_unflushed,
    replace_file,
    write_unflushed,
)
from structattn.support.json_files import read_json, write_json
from structattn.support.locks import exclusive_lock, remove_abandoned_folders
from structattn.sweeps.data_preparation import require_data, require_names, require_same_prepared_sources
from structattn.sweeps.outcome import TrialResult
from structattn.sweeps.plan import Bracket, Plan, going_on, is_unfinished
from structattn.sweeps.scheduler import Engine, NextJobs, SweepStatus, no_more_jobs, run_jobs
from structattn.sweeps.table import TableRow, select_best, table_rows
from structattn.sweeps.trials import Trial, make_trials, require_published
from structattn.sweeps.worker import Job, SweepFolder
from structattn.training.run import StopRequested, stop_on_signals

StatusCallback = Callable[[SweepStatus], None]

_AFTER_SIGINT = (
    "the sweep stops when each running trial has saved a checkpoint; a second Ctrl-C ends it at once, and what the "
    "trials have learned since their last checkpoints is lost"
)


def run_sweep(
    sweep: SweepSettings,
    path: str | PathLike[str],
    open_engine: Callable[[], Engine],
    on_status: StatusCallback,
    trial_results: str | PathLike[str] | None = None,
) -> list[TableRow]:
    """Train all trials of a sweep, evaluate the selected ones, write ``table.json``, and return a row for each cell.

    The state is in the folder alone: an interrupted sweep resumes when it is called again, with any engine, and
    trials that another sweep trained in the same folder are recognised by the digests of their settings.

    Args:
        sweep: the settings of the sweep.
        path: the sweep's folder; created if missing.
        open_engine: returns a new engine.
        on_status: called at every poll with the status of the jobs.
        trial_results: a file of trials. Those with a line there are not trained, and each that completes adds its own.

    Raises:
        SettingsError: the settings of a trial, or those behind a published number, are invalid, or no language or
            transduction has its name; nothing was started.
        DataError: prepared data that the sweep does not prepare are missing; nothing was started.
        Interrupted: SIGTERM or SIGINT was received; the same call resumes the sweep.
        FailedTrialsError: trials failed, and all others have ended; each has a note in the error.
        StructattnError: another process runs this sweep.
    """
    folder = SweepFolder(Path(path).absolute(), trial_results)
    folder.require_sweep_or_nothing()
    trials, plan = make_trials(sweep, folder.path), Plan(sweep, folder)
    require_published(sweep)
    require_names(trials)
    create_folder_unflushed(folder.runs)  # each run flushes the names of its parents
    with exclusive_lock(folder.lock, "sweep"), stop_on_signals(after_sigint=_AFTER_SIGINT) as stop:

        def next_jobs(status: SweepStatus, ended: Job) -> list[Job]:
            jobs = plan.next_jobs(status, ended)
            if new := [job.trial for job in jobs if job.trial not in known]:
                known.extend(new)
                _write_index(folder, known)
            return jobs

        def run(jobs: Sequence[Job], next_jobs: NextJobs = no_more_jobs) -> list[tuple[Job, str]]:
            require_data(job.trial for job in jobs)
            return run_jobs(open_engine(), jobs, on_status, stop.check, next_jobs).failed if jobs else []

        if (folder.path / "data").is_dir():
            remove_abandoned_folders(folder.path / "data")
        require_same_prepared_sources(trials)
        write_unflushed(folder.settings, sweep.to_yaml())  # each start writes it again
        remove_file_unflushed(folder.failed)  # they are tried again
        known = plan.trials()
        _write_index(folder, known)
        try:
            failed = run(plan.first_jobs(), next_jobs)
            failed += run(_evaluations(sweep, folder, read_results(folder, plan.brackets())))
        except StopRequested as request:
            raise Interrupted(f"{path}: {request}; run the same command again to resume") from None
        brackets = plan.brackets()
        rows = table_rows(read_results(folder, brackets), brackets, sweep.splits_of_selected)
        try:
            if failed:
                write_json(folder.failed, "failed", {"trials": sorted({job.trial.name for job, _ in failed})})
            replace_file(folder.table, json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        except OSError:
            if not failed:  # else the errors of the trials, say of the same full disk, say more
                raise
    if failed:
        raise _failure(path, failed, len(trials), rows)
    return rows


class FailedTrialsError(StructattnError):
    """Trials of a sweep failed, each of which has a note. ``rows``: the table of those that have ended."""

    def __init__(self, message: str, rows: Sequence[TableRow] = ()) -> None:
        super().__init__(message)
        self.rows = rows


def _failure(
    path: str | PathLike[str], failed: Sequence[tuple[Job, str]], trials: int, rows: Sequence[TableRow]
) -> FailedTrialsError:
    """Return an error with a note for each failed trial, which may have failed twice: it is evaluated again."""
    messages = {job.run_dir: (job, message) for job, message in failed}
    error = FailedTrialsError(f"{path}: {len(messages)} of {trials} trials failed:", rows)
    for job, message in messages.values():
        error.add_note(f"{job.trial.title} ({job.run_dir}): {message}")
    return error


def read_results(folder: SweepFolder, brackets: Sequence[Bracket]) -> list[TrialResult]:
    """Return the results of the trials that have ended, without those that a rung has stopped."""
    results = (folder.result(trial) for trial in going_on(brackets))
    return [result for result in results if result is not None]


def _evaluations(sweep: SweepSettings, folder: SweepFolder, results: Sequence[TrialResult]) -> list[Job]:
    """Return the jobs that evaluate the selected trials, as far as these are not evaluated."""
    jobs = [folder.job(result.trial, tuple(sweep.evaluate)) for result in select_best(results)]
    return [job for job in jobs if is_unfinished(job)]


def pending_trials(
    sweep: SweepSettings, folder: SweepFolder, brackets: Sequence[Bracket], results: Sequence[TrialResult]
) -> set[str]:
    """Return the names of the trials that are still to be trained or evaluated, without those stopped at a rung.

    Those that failed are not among them when the sweep has ended; if it is started again, they are tried again.

    Raises:
        DataError: the list of trials that failed is damaged.
    """
    splits = {split for split, which in sweep.evaluate.items() if which == "all"}
    ended = {each.trial.name for each in results if splits <= each.outcome.scores.keys()}
    return {trial.name for trial in going_on(brackets)} - ended - failed_trials(folder)


def failed_trials(folder: SweepFolder) -> set[str]:
    """Return the names of the trials that failed when the sweep ended last.

    Raises:
        DataError: the list of them is damaged.
    """
    return {*read_json(folder.failed, "failed")["trials"]} if folder.failed.exists() else set()


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
    replace_file(folder.index, json.dumps(index, indent=1) + "\n")
