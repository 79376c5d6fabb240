"""A run while it runs: its parts, and how its state is taken out of them and put back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from structattn.runs.checkpoint import MODEL_NAME, OPTIMIZER_NAME, STATE_NAME
from structattn.runs.events import EventLog
from structattn.runs.state import Progress, TrainingState
from structattn.runs.store import CheckpointStore
from structattn.runs.timing import Timing
from structattn.settings.training import TrainingSettings
from structattn.support.errors import CheckpointError
from structattn.tasks.task import Task
from structattn.training import snapshot
from structattn.training.learner import Learner
from structattn.training.order import DataOrder
from structattn.training.signals import StopFlag


@dataclass
class Run:
    """All parts of a run.

    Args:
        settings: those of the loop.
        task: gives batches, loss and scores.
        learner: what learns.
        order: the order of the data.
        events: the event log.
        timing: the clock.
        store: the checkpoints.
        stop: set when a signal asks the run to stop.
        advance: moves the progress bar by one update.
        progress: where the run stands; replaced, never changed.
        saved: where it stood at the last checkpoint.
    """

    settings: TrainingSettings
    task: Task[Any]
    learner: Learner
    order: DataOrder
    events: EventLog
    timing: Timing
    store: CheckpointStore
    stop: StopFlag
    advance: Callable[..., None]
    progress: Progress
    saved: Progress | None = None


def state_of(run: Run) -> TrainingState:
    """Everything that influences the run's next step. The tensors are the live ones: use them before that step."""
    return TrainingState(
        weights=snapshot.weights_of(run.learner.model),
        optimizer=snapshot.optimizer_tensors_of(run.learner),
        generators=snapshot.generators_to_text(snapshot.generator_states(run.learner.device)),
        progress=run.progress,
        event_log_length=run.events.length,
    )


def put_state(learner: Learner, state: TrainingState, store: CheckpointStore) -> None:
    """Set weights, optimizer and generators to a saved state.

    Raises:
        CheckpointError: they are not those of this model; the message names the file.
    """
    name = MODEL_NAME
    try:
        snapshot.put_weights(learner.model, state.weights)
        name = OPTIMIZER_NAME
        snapshot.put_optimizer_tensors(learner, state.optimizer)
        name = STATE_NAME
        snapshot.put_generator_states(snapshot.generators_from_text(state.generators), learner.device)
    except (snapshot.MismatchError, RuntimeError) as error:  # torch refuses a generator's state with a RuntimeError
        path = store.folder / str(state.progress.update) / name
        raise CheckpointError(f"{path}: {str(error).splitlines()[0]}") from None
