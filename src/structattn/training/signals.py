"""Stop a run on SIGTERM or SIGINT at the next point where no work is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequested(Exception):  # noqa: N818 - a request, not an error; training saves a checkpoint
    """A signal arrived; raised where the run can be interrupted."""


class StopFlag:
    """A flag set by a signal and checked between steps and during validation."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def check(self) -> None:
        """Raise if a signal has arrived.

        Raises:
            StopRequested: a signal has arrived; the message is its name.
        """
        if self.signal_name is not None:
            raise StopRequested(self.signal_name)


@contextmanager
def stop_on_signals() -> Iterator[StopFlag]:
    """Yield a flag that SIGTERM and SIGINT set; a second SIGINT terminates the process.

    Only the main thread can handle signals; in other threads the flag is never set.
    """
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def stop(number: int, frame: FrameType | None) -> None:
        flag.signal_name = signal.Signals(number).name
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python
