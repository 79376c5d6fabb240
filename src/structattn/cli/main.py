"""Start the program ``structattn``.

Exit codes: 0 success, 1 error, 2 wrong usage, 75 interrupted and resumable.

Encoding, standard streams and signals are set up, and a limit on address space is checked, before the commands are
imported: that takes some tenths of a second, and libraries that get no memory end the process with their own messages.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from structattn.support.environment import (
    STOP_SIGNALS,
    drop_unwritable_output,
    keep_freed_memory,
    leave_closed_terminal,
    open_standard_streams,
    require_address_space,
    write_message,
)
from structattn.support.errors import Interrupted, StructattnError


def main() -> None:
    """Run the command given by the process arguments."""
    _use_utf8()
    open_standard_streams()
    _handle_signals(_stop)
    try:
        require_address_space()
    except StructattnError as error:
        write_message(f"structattn: {error}\n")
        raise SystemExit(error.exit_code) from None
    keep_freed_memory()
    from structattn.cli.app import app

    try:
        app()
    finally:
        _handle_signals(_exit)
        drop_unwritable_output()


def _use_utf8() -> None:
    """Start Python again in UTF-8 mode if it has another encoding for paths, since settings and texts are UTF-8."""
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _handle_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """End the program by an exception, so that temporary files are removed; a second signal ends it at once.

    During an import it ends at once as well: some modules catch every exception while they are imported, and would
    be left incomplete.
    """
    if _importing(frame):
        _exit(number, frame)
    _handle_signals(_exit)
    leave_closed_terminal(number)
    _report_interruption()
    raise SystemExit(Interrupted.exit_code)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    _report_interruption()
    os._exit(Interrupted.exit_code)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _report_interruption() -> None:
    write_message("structattn: interrupted; run the same command again\n")
