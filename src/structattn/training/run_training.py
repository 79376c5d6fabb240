"""`train`: start or resume a run and train it to its end."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from structattn.runs.extensions import drop_pending_extension
from structattn.runs.folder import (
    RunFolder,
    begin_run,
    check_same_data,
    flatten,
    record_data_path,
    require_empty_folder,
    withdraw_run,
)
from structattn.runs.metadata import PAUSED, TrainingSummary, run_card, summary_of, summary_of_event
from structattn.runs.selection import weights_of
from structattn.runs.store import checkpoint_updates
from structattn.settings.run import RunSettings, limits_of
from structattn.settings.training import Budget
from structattn.support.devices import count_parameters
from structattn.support.environment import keep_freed_memory
from structattn.support.errors import (
    DISK_FULL,
    CheckpointError,
    Interrupted,
    ReportedError,
    SettingsError,
    StructattnError,
    UsageError,
)
from structattn.support.files import create_folder, flush_to_disk, remove_folder_with_only
from structattn.support.locks import exclusive_lock
from structattn.support.plugins import Plugin, plugins_of
from structattn.training.assembly import Plan, initial_learner, make_plan, require_weights_fit, restored_run
from structattn.training.distributed import SINGLE, World, joined, world_of
from structattn.training.initial_weights import describe
from structattn.training.launch import run_processes
from structattn.training.learner import Learner
from structattn.training.loop import save, train_until_done
from structattn.training.run import StopFlag, StopRequested, TrainingRun, stop_on_signals
from structattn.training.start import (
    OnValidation,
    Resume,
    Start,
    ValidatedModel,
    can_resume,
    observe,
    settings_of_start,
)

logger = logging.getLogger(__name__)


def train(
    settings: RunSettings | None,
    run_dir: str | PathLike[str],
    resume: Resume = False,
    torchrun: bool = True,
    limits: Mapping[str, Any] | None = None,
    initial_run: str | PathLike[str] | None = None,
    pause_after: Budget | None = None,
    on_validation: OnValidation | None = None,
) -> TrainingSummary:
    """Train a run to its end, resume it, or extend it.

    On the same machine and with the same numbers of threads and processes, the same settings and data give
    byte-identical weights, optimizer state and event log, however often the run is interrupted and resumed.

    The batches of an update are dealt out to the processes: their number changes sums in the last digits and which
    random numbers dropout draws, but nothing else. Validation is the same in all processes; the first one writes the
    run folder, which all of them must see.

    A run that has ended, or was interrupted, goes on with other ``limits``. It is then the run that had these limits
    from the start, if it had ended at a point of validation and its schedule does not depend on the end; otherwise
    warnings say before training what differs. The run card records each extension.

    Args:
        settings: the run settings; None: those in the folder of the run that is resumed.
        run_dir: the run folder; created if missing.
        resume: False starts a new run, True resumes an existing one, ``"auto"`` resumes if there is a run.
        torchrun: take part in the training of the processes that torchrun has started, if it has started this one.
            Otherwise as many processes are started as the settings say, or this one trains.
        limits: new values of ``max_updates``, ``max_epochs``, ``max_minutes`` and ``early_stopping_patience``, some of
            them, of the run that is resumed; all other settings must be those of the run.
        initial_run: the folder of a run; a new run starts from its best weights, as far as names and shapes agree, and
            without those of words if these are others. The run card lists which tensors were taken.
        pause_after: leave the run after so many epochs or updates, as an interruption would there; a resume continues
            it.
        on_validation: called by the first process before the first update and at each validation, before the
            checkpoint, for instance a ``TrainingRecorder``; training does not depend on it. Of several processes it
            must be picklable.

    Returns:
        How the run ended, its number of updates and epochs, and its best validation score.

    Raises:
        Interrupted: SIGTERM or SIGINT arrived; a checkpoint was saved.
        StructattnError: another process trains in the folder, a new run was requested but the folder is not empty, or
            a resume was requested but there is no run.
        DataError, SettingsError: data or settings are invalid, or a new limit is already reached.
        UsageError: there are limits, or no settings, but nothing is to be resumed; or there is an initial run, but a
            run is to be resumed; or ``on_validation`` is given, but the processes hold parts of the model (FSDP).
        CheckpointError: settings or data have changed, all checkpoints are missing or damaged, or the initial run has
            no tensor that fits, or beside another tokenizer one that does not.
        NonFiniteError: a loss, gradient or validation score is not finite.
        LostProcessError: another process that trains the run has ended.
        ReportedError: another process has raised one of these errors.
    """
    start = Start(resume, limits or {}, None if initial_run is None else Path(initial_run), pause_after, on_validation)
    settings = settings_of_start(settings, RunFolder(Path(run_dir)), start)
    world = world_of(os.environ) if torchrun else None
    if world is None and (size := settings.training.devices * settings.training.nodes) > 1:
        _require_fit(settings, World(size=size), start)
        options: dict[str, Any] = {"limits": limits, "initial_run": initial_run, "pause_after": pause_after}
        function = partial(train, settings, run_dir, resume, on_validation=on_validation, **options)
        return run_processes(function, settings.training)
    world = world or SINGLE
    _require_fit(settings, world, start)
    with joined(world):
        return _train_together(world, settings, RunFolder(Path(run_dir)), start)


def _train_together(world: World, settings: RunSettings, folder: RunFolder, start: Start) -> TrainingSummary:
    # Check everything before creating any file; check again under the lock, because the folder may have changed.
    plan = None
    if not can_resume(folder, settings, start):
        require_empty_folder(folder)
        plan = make_plan(folder, settings, start.initial_run)
    elif not os.access(folder.path, os.W_OK) and (finished := _summary_of_finished(folder, settings)):
        return finished  # a read-only disk has no place for a lock, which nothing needs
    world.barrier()  # the first process writes only after all have checked
    with explain_disk_full(folder), _locked(folder, world), stop_on_signals(world) as stop:
        resuming = bool(world.from_first(world.is_first and can_resume(folder, settings, start)))
        if resuming and world.is_first:
            _flush_what_a_killed_process_wrote(folder)
        if resuming and (finished := _summary_of_finished(folder, settings)):
            return finished
        return _train(plan or make_plan(folder, settings), resuming, stop, world, start)


def _summary_of_finished(folder: RunFolder, settings: RunSettings) -> TrainingSummary | None:
    """Return the summary of a run that has ended; None if it has not, or is to be extended by other limits."""
    end = folder.end_event() if limits_of(folder.read_settings()) == limits_of(settings) else None
    if end is None:
        return None
    logger.info("%s: the run is already finished (%s)", folder.path, end.get("reason"))
    return summary_of_event(end)


def _require_fit(settings: RunSettings, world: World, start: Start) -> None:
    """Check that the processes can train the run."""
    if start.on_validation is not None and world.size > 1 and settings.training.strategy == "fsdp":
        raise UsageError("on_validation needs the whole model; training.strategy is 'fsdp', expected 'ddp'")
    count = settings.training.gradient_accumulation_steps
    if count < world.size and not world.is_first:
        raise ReportedError(SettingsError.exit_code)
    if count < world.size:
        raise SettingsError(
            f"training.gradient_accumulation_steps: {count}; expected at least {world.size}, the number of processes, "
            "to which the batches of an update are dealt out"
        )


@contextmanager
def _locked(run_dir: RunFolder, world: World) -> Iterator[None]:
    """Create the run folder and lock it, in the first of the processes that train together.

    A new folder in which no run was started is removed.
    """
    if not world.is_first:
        yield
        return
    is_new = not run_dir.path.exists()
    create_folder(run_dir.path)
    with exclusive_lock(run_dir.lock, "training"):
        try:
            yield
        finally:
            if is_new:
                remove_folder_with_only(run_dir.path, run_dir.lock.name)


def _flush_what_a_killed_process_wrote(run_dir: RunFolder) -> None:
    flush_to_disk(run_dir.path)  # the settings, without which files of this process would not be taken for a run
    if run_dir.checkpoints.exists():
        flush_to_disk(run_dir.checkpoints)  # one that a new best.json may name; one renamed to be removed
    if run_dir.events.exists():
        flush_to_disk(run_dir.events)  # the end of the run


def _train(plan: Plan, resuming: bool, stop: StopFlag, world: World, start: Start) -> TrainingSummary:
    settings, run_dir = plan.settings, plan.run_dir
    if settings.training.num_threads is not None:
        torch.set_num_threads(settings.training.num_threads)
    keep_freed_memory()
    if resuming:
        check_same_data(run_dir, plan.identity, settings.data)
        require_weights_fit(plan)
    learner = initial_learner(plan, world)
    if world.is_first:
        _write_or_check_card(plan, learner, resuming)
    run = None
    try:
        with restored_run(plan, learner, stop) as run:
            if start.on_validation is not None and world.is_first:
                run.on_validation = partial(_observe, plan, start.on_validation)
            return _train_and_record(run, run_dir, run.progress.update if resuming else None, start.pause_after)
    except Exception:
        if world.is_first and (not resuming if run is None else run.progress.update == 0):
            withdraw_run(run_dir)
        raise


def _observe(plan: Plan, function: OnValidation, run: TrainingRun) -> None:
    model, path = run.learner.model, plan.run_dir.path
    observe(function, run.learner, ValidatedModel(path, plan.settings, plan.prepared, model, run.progress.update))


def _write_or_check_card(plan: Plan, learner: Learner, resuming: bool) -> None:
    settings, run_dir = plan.settings, plan.run_dir
    parameters = count_parameters(learner.model)
    size, device, processes = plan.prepared.vocabulary.size, learner.device, learner.world.size
    card = run_card(settings, plan.prepared.kind, size, plan.identity, parameters, device, processes, plan.pretrained)
    card["tokenizer"] = plan.prepared.header.tokenizer_digests
    if plugins := _plugins_of(plan):
        card["plugins"] = [plugin.record for plugin in plugins]
    if plan.initial is not None:
        card["initial_weights"] = plan.initial.compare(weights_of(learner.model))
    if resuming:
        _require_same_pretrained(run_dir, plan.pretrained)
        if changes := run_dir.changed_plugins():
            raise CheckpointError(f"{run_dir.path}: cannot resume with another plugin: {'; '.join(changes)}")
        if plan.limits is None:
            drop_pending_extension(run_dir)
        record_data_path(run_dir, settings)
        _warn_if_hardware_differs(run_dir, card["hardware"])
    else:
        begin_run(run_dir, settings, card)
        if plan.initial is not None:
            logger.warning("%s: %s", run_dir.path, describe(card["initial_weights"]))


def _plugins_of(plan: Plan) -> list[Plugin]:
    """Return the plugins of what the settings name, and of the language or transduction of the data."""
    tree = plan.settings.model_dump(mode="json", exclude={"data"})
    leaves = [*flatten(tree).values(), *plan.prepared.header.extra.values()]
    return plugins_of([leaf for leaf in leaves if isinstance(leaf, str)])


def _require_same_pretrained(run_dir: RunFolder, digests: dict[str, str] | None) -> None:
    before = run_dir.read_card().get("pretrained")
    if before != digests:
        changed = sorted(name for name, digest in (digests or {}).items() if (before or {}).get(name) != digest)
        raise CheckpointError(f"{run_dir.path}: model.pretrained: changed since the run started: {', '.join(changed)}")


def _warn_if_hardware_differs(run_dir: RunFolder, now: dict[str, Any]) -> None:
    before = {"processes": 1, **run_dir.read_card()["hardware"]}
    for name, reason in (
        ("threads", "results may differ in the last digits"),
        ("processes", "results may differ in the last digits, and dropout draws other random numbers"),
    ):
        if before[name] != now[name]:
            message = "%s: started with %s %s and resumes with %s; %s"
            logger.warning(message, run_dir.path, before[name], name, now[name], reason)


def _train_and_record(
    run: TrainingRun, run_dir: RunFolder, resumed_from: int | None, pause_after: Budget | None
) -> TrainingSummary:
    try:
        reason = train_until_done(run, pause_after)
    except StopRequested as request:
        _save_for_now(run)
        run.learner.world.barrier()  # the end of one process ends the others, also while the first one saves
        raise Interrupted(
            f"{run_dir.path}: {request} after update {run.progress.update}; a checkpoint was saved, resume to continue"
        ) from None
    summary = summary_of(reason, run.progress, resumed_from, run.settings.select_by)
    if reason == PAUSED:
        _save_for_now(run)
    elif run.learner.world.is_first:
        _record_end(run, run_dir, summary)
    return summary


def _save_for_now(run: TrainingRun) -> None:
    """Save a checkpoint unless there is one of this update; it is removed when the run goes on."""
    if run.saved != run.progress:
        save(run, temporary=True)


def _record_end(run: TrainingRun, run_dir: RunFolder, summary: TrainingSummary) -> None:
    seconds = round(run.timing.seconds, 1)
    result = summary.end_values() | {"seconds": seconds, "event_log": asdict(run.events.prefix)}
    run_dir.write_card(run_dir.read_card() | {"result": result})
    run.timing.record("end", update=run.progress.update)
    run.events.write("end", **summary.end_values())  # written last: it marks the run as finished
    run.events.flush_to_disk()


@contextmanager
def explain_disk_full(run_dir: RunFolder) -> Iterator[None]:
    """Replace the operating system's error about a full disk by one that says what to do.

    Raises:
        StructattnError: the disk is full, or a quota or file size limit is reached.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        saved = checkpoint_updates(run_dir.checkpoints)
        state = f"the checkpoint after update {max(saved)} is intact" if saved else "there is no checkpoint yet"
        advice = "resume" if run_dir.has_run() else "run the same command again"
        raise StructattnError(
            f"{error.filename or run_dir.path}: cannot write ({error.strerror}); {state}: free disk space, for "
            f"instance old checkpoints of other runs, and {advice}"
        ) from None
