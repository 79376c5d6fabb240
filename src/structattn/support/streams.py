"""The standard streams of the program, also where they are closed or full."""

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _StandardOutput(io.FileIO):
    """Standard output, with its name in errors."""

    def write(self, data: "Buffer") -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "standard output"
            raise


def open_standard_streams() -> None:
    """Open the standard streams, also where they were closed.

    A closed standard input or output gives an error when it is used; messages to a closed standard error are lost. The
    descriptors are opened in any case: otherwise the next file that is opened would have that of standard output, and
    what other libraries print would be written into that file.
    """
    for descriptor, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free descriptor
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the program ends
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput(1, "w", closefd=False)),
        encoding="utf-8",
        errors="backslashreplace",  # a path may have bytes that are not UTF-8
        line_buffering=os.isatty(1),
    )
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def drop_unwritable_output() -> None:
    """Drop output that could not be written, which was reported: Python would try again at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def write_message(text: str) -> None:
    """Write a text to standard error without buffers, as handlers of signals must: ``sys.stderr`` may be in use."""
    os.write(2, text.encode())
