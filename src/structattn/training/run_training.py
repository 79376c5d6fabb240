"""`train`: begin a run in a folder, or go on with it, and bring it to its end."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from structattn.runs.folder import (
    RunFolder,
    begin_run,
    check_same_data,
    check_same_settings,
    remember_place_of_data,
    require_own_folder,
)
from structattn.runs.metadata import run_card
from structattn.runs.summary import TrainingSummary, summary_of, summary_of_event
from structattn.settings.run import RunSettings
from structattn.support.errors import Interrupted, StructattnError
from structattn.support.locks import exclusive_lock
from structattn.training.assembly import Plan, assembled, initial_learner, make_plan
from structattn.training.loop import save, train_until_done
from structattn.training.run import Run
from structattn.training.signals import StopFlag, StopRequested, stop_on_signals

logger = logging.getLogger(__name__)

Resume = bool | Literal["auto"]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def train(settings: RunSettings, folder: Path, resume: Resume = False) -> TrainingSummary:
    """Train to the end.

    The same settings and data give the same weights, optimizer state and event log, byte for byte, on the same
    machine with the same number of threads, however often the run is interrupted and resumed.

    Args:
        settings: everything that decides the run.
        folder: the run's folder; made if missing.
        resume: False begins a run, True goes on with one, ``auto`` does what fits.

    Raises:
        Interrupted: SIGTERM or SIGINT arrived; a checkpoint was saved.
        StructattnError: another process trains in the folder, or it holds a run where none was expected, or none.
        DataError, SettingsError: data or settings cannot be used.
        CheckpointError: settings or data changed, or no checkpoint is whole.
        NonFiniteError: a step is not finite.
    """
    place = RunFolder(folder)
    # What can be refused is refused before anything is made; under the lock it may have changed, and is asked again.
    plan = None if _goes_on(place, settings, resume) else _plan_of_new_run(place, settings)
    folder.mkdir(parents=True, exist_ok=True)
    with disk_full_explained(place), exclusive_lock(place.lock, "training"), stop_on_signals() as stop:
        goes_on = _goes_on(place, settings, resume)
        if goes_on and (end := place.end_event()):
            logger.info("%s: the run has ended (%s); nothing is left to do", folder, end.get("reason"))
            return summary_of_event(end)
        return _train(plan or make_plan(place, settings), goes_on, stop)


def _plan_of_new_run(folder: RunFolder, settings: RunSettings) -> Plan:
    require_own_folder(folder)
    return make_plan(folder, settings)


def _goes_on(folder: RunFolder, settings: RunSettings, resume: Resume) -> bool:
    """Whether there is a run to go on with, as far as the folder and the settings tell."""
    if not folder.holds_a_run():
        if resume is True:
            raise StructattnError(f"{folder.path}: holds no run to resume")
        return False
    if not resume:
        raise StructattnError(f"{folder.path}: already holds a run; resume it, or choose another folder")
    check_same_settings(folder, settings)
    return True


def _train(plan: Plan, goes_on: bool, stop: StopFlag) -> TrainingSummary:
    settings, folder = plan.settings, plan.folder
    if settings.training.num_threads is not None:
        torch.set_num_threads(settings.training.num_threads)
    if goes_on:
        check_same_data(folder, plan.identity, settings.data)
        remember_place_of_data(folder, settings)
    learner = initial_learner(plan)
    parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    card = run_card(
        settings, plan.prepared.kind, plan.prepared.vocabulary.size, plan.identity, parameters, learner.device
    )
    if goes_on:
        _compare_threads(folder, card)
    else:
        begin_run(folder, settings, card)
    with assembled(plan, learner, stop) as run:
        return _run_to_the_end(run, folder, run.progress.update if goes_on else None)


def _compare_threads(folder: RunFolder, card: dict[str, Any]) -> None:
    before, now = folder.read_card().get("hardware", {}).get("threads"), card["hardware"]["threads"]
    if before != now:
        message = "%s: began with %s threads and goes on with %s; results may differ in the last digits"
        logger.warning(message, folder.path, before, now)


def _run_to_the_end(run: Run, folder: RunFolder, resumed_from: int | None) -> TrainingSummary:
    try:
        reason = train_until_done(run)
    except StopRequested as request:
        if run.saved != run.progress:
            save(run, passing=True)
        raise Interrupted(
            f"{folder.path}: {request} after update {run.progress.update}; a checkpoint is saved, resume to go on"
        ) from None
    summary = summary_of(reason, run.progress, resumed_from, run.settings.select_by)
    result = summary.end_values() | {"seconds": round(run.timing.seconds, 1)}
    folder.write_card(folder.read_card() | {"result": result})
    run.timing.record("end", update=run.progress.update)
    run.events.write("end", **summary.end_values())  # last: from here on the run counts as finished
    run.events.flush_to_disk()
    return summary


@contextmanager
def disk_full_explained(folder: RunFolder) -> Iterator[None]:
    """Turn the system's error about a full disk into one that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise StructattnError(
            f"{error.filename or folder.path}: cannot grow ({error.strerror}); the last checkpoint in "
            f"{folder.checkpoints} is whole: free some space, for instance in other runs' checkpoints, and resume"
        ) from None
