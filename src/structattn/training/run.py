"""The parts of a run in training; extract and restore its state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from structattn.runs.checkpoint import MODEL_NAME, OPTIMIZER_NAME, STATE_NAME
from structattn.runs.logs import EventLog, NoLog, Timing
from structattn.runs.state import Progress, TrainingState
from structattn.runs.store import CheckpointStore
from structattn.runs.weights import MismatchError, load_weights, weights_of
from structattn.settings.training import TrainingSettings
from structattn.support.errors import CheckpointError
from structattn.tasks.task import Task
from structattn.training.learner import (
    Learner,
    generators_from_text,
    generators_of_all,
    generators_to_text,
    load_optimizer_tensors,
    optimizer_tensors_of,
    own_generators,
    set_generator_states,
)
from structattn.training.progress import DataOrder
from structattn.training.signals import StopFlag


@dataclass
class Run:
    """The parts of a run in training.

    Args:
        settings: the training settings.
        task: provides batches, losses and scores.
        learner: the model with its optimizer.
        order: the data order.
        events: the event log.
        timing: the timing log.
        store: the checkpoint store.
        stop: set when a signal asks the run to stop.
        advance: moves the progress bar by one update.
        progress: the current progress; replaced, never mutated.
        saved: the progress at the last checkpoint.
        on_validation: called with the run before its first update and after each validation, before it is saved.
    """

    settings: TrainingSettings
    task: Task[Any]
    learner: Learner
    order: DataOrder
    events: EventLog | NoLog
    timing: Timing | NoLog
    store: CheckpointStore
    stop: StopFlag
    advance: Callable[..., None]
    progress: Progress
    saved: Progress | None = None
    on_validation: Callable[["Run"], object] | None = None

    @property
    def minutes(self) -> float:
        """The training time in minutes; 0 if it does not matter. Processes that train together agree on it."""
        return 0.0 if self.settings.max_minutes is None else self.learner.world.from_first(self.timing.seconds / 60)


def state_of(run: Run) -> TrainingState:
    """Return everything that influences the next step. The tensors are not copied: use them before that step.

    Processes that train together must call this together.
    """
    return TrainingState(
        weights=weights_of(run.learner.model),
        optimizer=optimizer_tensors_of(run.learner),
        generators=generators_to_text(generators_of_all(run.learner)),
        progress=run.progress,
        event_log=run.events.prefix,
    )


def restore_state(learner: Learner, state: TrainingState, store: CheckpointStore) -> None:
    """Restore weights, optimizer state and random generators.

    Raises:
        CheckpointError: the state does not fit the model; the message names the file.
    """
    name = MODEL_NAME
    try:
        load_weights(learner.model, state.weights)
        name = OPTIMIZER_NAME
        load_optimizer_tensors(learner, state.optimizer)
        name = STATE_NAME
        set_generator_states(own_generators(generators_from_text(state.generators), learner.world), learner.device)
    except (MismatchError, RuntimeError) as error:  # torch raises RuntimeError for an invalid generator state
        path = store.folder / str(state.progress.update) / name
        raise CheckpointError(f"{path}: {str(error).splitlines()[0]}") from None
