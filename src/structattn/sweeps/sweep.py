"""`run_sweep`: from a sweep's settings to its table."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from structattn.evaluation.evaluate import is_scored
from structattn.runs.folder import RunFolder, check_same_settings
from structattn.settings.sweep import SweepSettings
from structattn.support.errors import Interrupted, StructattnError
from structattn.support.files import write_atomically
from structattn.support.locks import exclusive_lock
from structattn.sweeps.engine import Engine, Standing, run_all
from structattn.sweeps.table import Result, Row, result_of, rows_of, rows_to_json, selected_of
from structattn.sweeps.trials import Trial, trials_of
from structattn.sweeps.work import Job
from structattn.training.signals import StopRequested, stop_on_signals

Watch = Callable[[Standing], None]


class SweepFolder:
    """Where everything of a sweep lies.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
        self.table = path / "table.json"
        self.index = path / "trials.json"
        self.lock = path / "lock"

    def run(self, trial: Trial) -> Path:
        """The run folder of a trial."""
        return self.runs / trial.name


def run_sweep(sweep: SweepSettings, path: Path, make_engine: Callable[[], Engine], watch: Watch) -> list[Row]:
    """Run the trials that have not ended, score the selected ones, and write ``table.json``.

    Nothing but run folders is needed to go on: a sweep that was killed continues when it is called again, under any
    engine, and trials that other sweeps put into the same folder are found by the digests of their settings.

    Args:
        sweep: what is to be trained.
        path: the sweep's folder; made if missing.
        make_engine: opens the engine.
        watch: called often while trials run.

    Raises:
        SettingsError: the settings of a trial do not fit; nothing was begun.
        Interrupted: SIGTERM or SIGINT arrived; the same call goes on.
        StructattnError: another process runs this sweep, or trials failed; all others have ended then.
    """
    folder = SweepFolder(path.absolute())
    trials = trials_of(sweep, folder.path)
    folder.runs.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder.lock, "the sweep"), stop_on_signals() as stop:
        _sweep_up(folder)
        _write_index(folder, trials)
        try:
            failed = _train(sweep, folder, trials, make_engine, watch, stop.check)
            results = results_of(folder, trials)
            failed += _score_selected(sweep, folder, results, make_engine, watch, stop.check)
        except StopRequested as request:
            raise Interrupted(f"{path}: {request}; the same command goes on") from None
        rows = rows_of(results, folder.runs)
        write_atomically(folder.table, json.dumps(rows_to_json(rows), indent=1) + "\n")
    if failed:
        lines = [f"{job.trial.title} ({job.folder}): {message}" for job, message in failed]
        raise StructattnError(f"{path}: {len(failed)} of {len(trials)} trials failed:\n" + "\n".join(lines))
    return rows


def results_of(folder: SweepFolder, trials: list[Trial]) -> list[Result]:
    """The results of the trials that have ended."""
    found = [result_of(trial, folder.run(trial)) for trial in trials]
    return [result for result in found if result is not None]


def _train(
    sweep: SweepSettings,
    folder: SweepFolder,
    trials: list[Trial],
    make_engine: Callable[[], Engine],
    watch: Watch,
    check: Callable[[], None],
) -> list[tuple[Job, str]]:
    splits = tuple(split for split, which in sweep.evaluate.items() if which == "all")
    jobs = [Job(trial, folder.run(trial), splits) for trial in trials]
    return _run([job for job in jobs if not _is_done(job)], make_engine, watch, check)


def _score_selected(
    sweep: SweepSettings,
    folder: SweepFolder,
    results: list[Result],
    make_engine: Callable[[], Engine],
    watch: Watch,
    check: Callable[[], None],
) -> list[tuple[Job, str]]:
    splits = tuple(sweep.evaluate)
    jobs = [Job(result.trial, folder.run(result.trial), splits) for result in selected_of(results)]
    return _run([job for job in jobs if not _is_done(job)], make_engine, watch, check)


def _run(
    jobs: list[Job], make_engine: Callable[[], Engine], watch: Watch, check: Callable[[], None]
) -> list[tuple[Job, str]]:
    return run_all(make_engine(), jobs, watch, check).failed if jobs else []


def _is_done(job: Job) -> bool:
    """Whether a job's run has ended and is scored.

    Raises:
        CheckpointError: its folder holds a run under other settings: a default has changed since.
    """
    if result_of(job.trial, job.folder) is None:
        return False
    check_same_settings(RunFolder(job.folder), job.trial.settings)
    return all(is_scored(job.folder, split) for split in job.splits)


def _sweep_up(folder: SweepFolder) -> None:
    """Remove what workers that were killed while making data left behind."""
    for leftover in (folder.path / "data").glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _write_index(folder: SweepFolder, trials: list[Trial]) -> None:
    """Which run folder belongs to which cell, for people and scripts."""
    index = {
        trial.name: {
            "cell": trial.cell,
            "restart": trial.restart,
            "drawn": trial.drawn,
            "data": str(trial.settings.data),
        }
        for trial in trials
    }
    write_atomically(folder.index, json.dumps(index, indent=1) + "\n")
