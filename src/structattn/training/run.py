"""The parts of a run in training: extract and restore its state, and stop it where no work is lost."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from structattn.runs.checkpoint import MODEL_NAME, OPTIMIZER_NAME, STATE_NAME, Progress, TrainingState
from structattn.runs.logs import EventLog, NoLog, Timing
from structattn.runs.selection import MismatchError, load_weights, weights_of
from structattn.runs.store import CheckpointStore
from structattn.settings.training import TrainingSettings
from structattn.support.environment import STOP_SIGNALS, leave_closed_terminal, write_message
from structattn.support.errors import CheckpointError
from structattn.support.progress import Advance
from structattn.tasks.task import Task
from structattn.training.distributed import SINGLE, World
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


class StopRequested(Exception):  # noqa: N818 - a request, not an error; training saves a checkpoint
    """A signal arrived; raised where the run can be interrupted."""


class StopFlag:
    """A flag set by a signal and checked between steps and during validation.

    Args:
        world: the processes that train together, which all stop at the same check.
    """

    def __init__(self, world: World = SINGLE) -> None:
        self.number, self._world = 0, world

    def check(self) -> None:
        """Raise if a signal has arrived.

        Raises:
            StopRequested: a signal has arrived; the message is its name.
        """
        number = self._world.largest(self.number)
        if number:
            raise StopRequested(signal.Signals(number).name)


AFTER_SIGINT = (
    "training stops after this update, or within this validation, and saves a checkpoint; a second Ctrl-C ends it at "
    "once, and what it has learned since the last checkpoint is lost"
)


@contextmanager
def stop_on_signals(world: World = SINGLE, after_sigint: str = AFTER_SIGINT) -> Iterator[StopFlag]:
    """Yield a flag that SIGTERM, SIGINT and SIGHUP set; a second SIGINT terminates the process.

    Only the main thread can handle signals; in other threads the flag is never set. SIGHUP stays ignored where it is,
    as under nohup.

    Args:
        world: the processes that train together.
        after_sigint: what the first SIGINT waits for, and what a second one does; the first process says so at once.
    """
    flag = StopFlag(world)
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def stop(number: int, frame: FrameType | None) -> None:
        flag.number = number
        leave_closed_terminal(number)
        if number == signal.SIGINT:
            if world.is_first:
                write_message(f"structattn: {after_sigint}\n")
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    handled = [each for each in STOP_SIGNALS if each.name != "SIGHUP" or signal.getsignal(each) != signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in handled}
    try:
        yield flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python


@dataclass
class TrainingRun:
    """The parts of a run in training.

    Args:
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
    advance: Advance
    progress: Progress
    saved: Progress | None = None
    on_validation: Callable[["TrainingRun"], object] | None = None

    @property
    def minutes(self) -> float:
        """The training time in minutes; 0 if it does not matter. Processes that train together agree on it."""
        return 0.0 if self.settings.max_minutes is None else self.learner.world.from_first(self.timing.seconds / 60)


def state_of(run: TrainingRun) -> TrainingState:
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
