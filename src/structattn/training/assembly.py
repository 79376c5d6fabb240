"""The parts of a run, built from its settings and set to its newest checkpoint."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from structattn.data.folders import PreparedFolder, open_prepared, verify_sources
from structattn.runs.checkpoint import Identity
from structattn.runs.folder import RunFolder, settings_digest
from structattn.runs.logs import EventLog, Timing
from structattn.runs.ranking import best_updates
from structattn.runs.store import CheckpointStore
from structattn.settings.run import RunSettings
from structattn.support.errors import CheckpointError
from structattn.support.progress import progress as progress_bar
from structattn.support.seeds import derived_seed
from structattn.tasks.model import build_model_for
from structattn.tasks.registry import TASKS, require_trainable
from structattn.tasks.task import Task
from structattn.training.learner import Learner, build_learner
from structattn.training.position_limits import require_positions_that_reach
from structattn.training.progress import DataOrder, first_progress
from structattn.training.run import Run, put_state
from structattn.training.signals import StopFlag


@dataclass(frozen=True)
class Plan:
    """What a run is made from.

    Args:
        folder: where it is kept.
        settings: everything that decides it.
        prepared: its data.
        task: what is learnt from them.
        identity: the digests of both.
    """

    folder: RunFolder
    settings: RunSettings
    prepared: PreparedFolder
    task: Task[Any]
    identity: Identity


def make_plan(folder: RunFolder, settings: RunSettings) -> Plan:
    """Open the data that the settings name; every byte of them is verified.

    Raises:
        DataError: the data cannot be used, or a source has changed since it was prepared.
        SettingsError: the settings do not suit the data, or the model does not suit the task.
    """
    require_trainable(settings.task, settings.model.kind)
    prepared = open_prepared(settings.data, verify=True)
    verify_sources(prepared)
    require_positions_that_reach(settings, prepared)
    task = TASKS[settings.task].build(prepared, settings)
    return Plan(folder, settings, prepared, task, Identity(settings_digest(settings), prepared.digest))


def initial_learner(plan: Plan) -> Learner:
    """The model as the seed draws it; after that, dropout draws from a seed of its own."""
    seed = plan.settings.seed
    torch.manual_seed(derived_seed(seed, "initialisation"))
    model = build_model_for(plan.settings.model, plan.prepared)
    torch.manual_seed(derived_seed(seed, "dropout"))
    return build_learner(model, plan.settings.training)


@contextmanager
def assembled(plan: Plan, learner: Learner, stop: StopFlag) -> Iterator[Run]:
    """A run at its newest checkpoint, or at its beginning; its files are open within the block."""
    training, folder = plan.settings.training, plan.folder
    best = partial(best_updates, folder.events, plan.settings.evaluation.best_checkpoints)
    store = CheckpointStore(folder.checkpoints, plan.identity, training.keep_checkpoints, folder.best, best)
    store.clean()
    state = store.newest()
    if state is None and folder.best.exists():
        raise CheckpointError(f"{folder.checkpoints}: the run's checkpoints are gone; there is nothing to go on from")
    if state is not None:
        put_state(learner, state, store)
    progress = first_progress(training) if state is None else state.progress
    store.name_best(progress)
    order = DataOrder(plan.task, training.gradient_accumulation_steps)
    with ExitStack() as files:
        events = files.enter_context(EventLog(folder.events, 0 if state is None else state.event_log_length))
        timing = files.enter_context(Timing(folder.timing))
        timing.record("start", update=progress.update, threads=torch.get_num_threads())
        bar = progress_bar("training", planned_updates(plan.settings, order), "updates", progress.update)
        run = Run(training, plan.task, learner, order, events, timing, store, stop, files.enter_context(bar), progress)
        run.saved = None if state is None else progress
        yield run


def planned_updates(settings: RunSettings, order: DataOrder) -> int | None:
    """The updates that the run takes if nothing ends it early; epochs are taken to be as long as the first."""
    training = settings.training
    limits = [training.max_updates] if training.max_updates is not None else []
    if training.max_epochs is not None:
        limits.append(training.max_epochs * order.updates_in_epoch(0))
    return min(limits, default=None)
