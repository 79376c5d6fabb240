"""Stop a run on SIGTERM or SIGINT at the next point where no work is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from structattn.support.streams import write_message
from structattn.training.distributed import SINGLE, World


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
    """Yield a flag that SIGTERM and SIGINT set; a second SIGINT terminates the process.

    Only the main thread can handle signals; in other threads the flag is never set.

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
        if number == signal.SIGINT:
            if world.is_first:
                write_message(f"structattn: {after_sigint}\n")
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python
