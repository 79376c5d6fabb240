"""Build the parts of a run from its settings and restore its newest checkpoint."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from structattn.runs.checkpoint import (
    MODEL_NAME,
    DamagedCheckpointError,
    Identity,
    TrainingState,
    read_checkpoint,
    weights_without_values,
)
from structattn.runs.extensions import record_extension, run_digest
from structattn.runs.folder import RunFolder, settings_digest
from structattn.runs.logs import NO_EVENTS, EventLog, NoLog, Timing, events_of, trained_seconds
from structattn.runs.selection import MismatchError, best_updates, check_weights
from structattn.runs.store import CheckpointStore, checkpoint_path, checkpoint_updates
from structattn.settings.run import RunSettings, limits_of, unit_of_loss
from structattn.support.devices import default_device, require_fast
from structattn.support.errors import CheckpointError
from structattn.support.files import flush_to_disk
from structattn.support.progress import progress as progress_bar
from structattn.support.progress import show_nothing
from structattn.support.seeds import derived_seed
from structattn.tasks.model import build_model_for, expected_weights, load_pretrained_weights, pretrained_digests
from structattn.tasks.position_limits import require_positions_fit
from structattn.tasks.registry import TASKS, require_trainable
from structattn.tasks.task import Task
from structattn.tasks.trained_data import open_data
from structattn.text.folders.prepared import PreparedFolder, open_prepared, verify_sources
from structattn.training.distributed import SINGLE, World, require_shardable
from structattn.training.initial_weights import InitialWeights, read_again, read_initial_weights
from structattn.training.learner import Learner, build_learner, distribute
from structattn.training.optimizers import with_total_steps
from structattn.training.progress import DataOrder, first_progress, planned_updates
from structattn.training.run import StopFlag, TrainingRun, restore_state
from structattn.training.start import extend

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """Settings, data and task of a run.

    Args:
        identity: digests of the settings and the data.
        pretrained: digests of the files of pretrained weights; None if there are none.
        limits: the limits of an existing run that is to be extended by other ones in ``settings``; None otherwise.
        initial: the weights of another run from which this one starts; None without, or if it has a checkpoint.
    """

    run_dir: RunFolder
    settings: RunSettings
    prepared: PreparedFolder
    task: Task[Any]
    identity: Identity
    pretrained: dict[str, str] | None = None
    limits: dict[str, Any] | None = None
    initial: InitialWeights | None = None


def make_plan(run_dir: RunFolder, settings: RunSettings, initial_run: Path | None = None) -> Plan:
    """Open the prepared data, verify every byte and build the task.

    Raises:
        DataError: the data are invalid, or a source file has changed since preparation.
        SettingsError: the settings do not fit the data, the model does not support the task, the precision is slow
            on this device, or the files of pretrained weights are missing.
        StructattnError: the initial weights cannot be read, or do not fit.
    """
    require_fast(settings.training.precision, default_device())
    require_trainable(settings.task, settings.model.kind)
    stored = run_dir.read_settings() if run_dir.has_run() else None
    prepared = open_prepared(settings.data) if stored is None else open_data(run_dir.path, settings, None)
    verify_sources(prepared)
    require_positions_fit(settings, prepared)
    task = TASKS[settings.task].build(prepared, settings)
    digest = settings_digest(settings) if stored is None else run_digest(run_dir, stored)
    limits = None if stored is None or limits_of(stored) == limits_of(settings) else limits_of(stored)
    identity, pretrained = Identity(digest, prepared.digest), pretrained_digests(settings.model)
    if stored is not None:
        initial = read_again(run_dir, prepared, settings)
    else:
        initial = None if initial_run is None else read_initial_weights(initial_run, prepared, settings)
    return Plan(run_dir, settings, prepared, task, identity, pretrained, limits, initial)


def require_weights_fit(plan: Plan) -> None:
    """Check that the newest checkpoint is one of the model, before any memory is taken for it.

    Raises:
        CheckpointError: it is not.
    """
    folder = plan.run_dir.checkpoints
    newest = checkpoint_path(folder, max(checkpoint_updates(folder), default=0))
    try:
        check_weights(
            weights_without_values(newest),
            expected_weights(plan.settings.model, plan.prepared, recognition=plan.settings.training.recognition),
        )
    except DamagedCheckpointError:  # missing, or replaced by an older one when it is read
        return
    except MismatchError as error:
        raise CheckpointError(f"{newest / MODEL_NAME}: {error}") from None


def initial_learner(plan: Plan, world: World = SINGLE) -> Learner:
    """Initialize the model from the run's seed; then seed the generators for dropout, in each process with its rank.

    Raises:
        SettingsError: the model cannot be trained as the settings say.
    """
    seed, rank = plan.settings.seed, () if world.is_first else (world.rank,)
    torch.manual_seed(derived_seed(seed, "initialisation"))
    model = build_model_for(plan.settings.model, plan.prepared, recognition=plan.settings.training.recognition)
    if world.size > 1 and plan.settings.training.strategy == "fsdp":
        require_shardable(model)
    load_pretrained_weights(model, plan.settings.model, plan.prepared)
    if plan.initial is not None:
        plan.initial.load_into(model)
    torch.manual_seed(derived_seed(seed, "dropout", *rank))
    return replace(build_learner(model, plan.settings.training, str(world.device())), world=world)


@contextmanager
def restored_run(plan: Plan, learner: Learner, stop: StopFlag) -> Iterator[TrainingRun]:
    """Yield the run, restored from its newest checkpoint if there is one; its log files are open within the block.

    Raises:
        CheckpointError: the checkpoints are missing, damaged, or do not fit the model.
    """
    training, run_dir = plan.settings.training, plan.run_dir
    store = CheckpointStore(
        run_dir.checkpoints,
        plan.identity,
        training.keep_checkpoints,
        run_dir.best,
        lambda: best_updates(
            events_of(run_dir.events, ["validation"]), plan.settings.evaluation.num_checkpoints("best")
        ),
    )
    state = _newest_state(run_dir, store, learner.world)
    if state is not None:
        restore_state(learner, state, store)
    learner = distribute(learner, training)
    progress = first_progress(training) if state is None else state.progress
    order = DataOrder(plan.task, training.gradient_accumulation_steps)
    extension = None
    if plan.limits is not None:
        world = learner.world
        minutes = world.from_first(trained_seconds(run_dir.timing) / 60 if world.is_first else 0.0)
        extension = extend(run_dir, plan.settings, plan.limits, progress, order, minutes)
    planned = planned_updates(plan.settings, order)
    training = with_total_steps(training, planned)
    log, saved = NoLog(), None if state is None else progress
    if not learner.world.is_first:
        yield TrainingRun(training, plan.task, learner, order, log, log, store, stop, show_nothing, progress, saved)
        return
    store.write_best(progress)
    with ExitStack() as files:
        events = files.enter_context(EventLog(run_dir.events, NO_EVENTS if state is None else state.event_log))
        timing = files.enter_context(Timing(run_dir.timing))
        flush_to_disk(run_dir.path)  # the names of the logs and of the folder of checkpoints
        if extension is not None:
            for difference in extension.differences:
                logger.warning("%s: will differ from a run trained through: %s", run_dir.path, difference)
            events.flush_to_disk()  # without an end event
            record_extension(run_dir, plan.settings, extension)
        threads, processes = torch.get_num_threads(), learner.world.size
        timing.record("start", update=progress.update, threads=threads, processes=processes)
        limit, counted = training.max_minutes, f"{unit_of_loss(plan.settings.task)}s"
        if limit is None:
            bar = progress_bar("training", planned, "updates", progress.update, counted=counted)
        else:  # the other limits are seldom reached

            def of_time() -> str:
                return f"{timing.seconds / 60:.1f} of {limit:g} min"

            bar = progress_bar("training", None, "updates", progress.update, of_time, counted)
        advance = files.enter_context(bar)
        yield TrainingRun(training, plan.task, learner, order, events, timing, store, stop, advance, progress, saved)


def _newest_state(run_dir: RunFolder, store: CheckpointStore, world: World) -> TrainingState | None:
    """Load the newest intact checkpoint; of processes that train together, the first decides which one that is."""
    state = None
    if world.is_first:
        store.clean()
        state = store.newest()
        if state is None and run_dir.best.exists():
            raise CheckpointError(f"{run_dir.checkpoints}: the checkpoints of the run are missing; cannot resume")
    update = int(world.from_first(-1 if state is None else state.progress.update))
    if world.is_first or update < 0:
        return state
    return read_checkpoint(store.folder / str(update), store.identity)
