"""Lines of standard input."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedIOBase, UnsupportedOperation
from pathlib import Path
from typing import cast

STANDARD_INPUT = Path("standard input")
"""Its name in messages."""


def standard_input_lines() -> Iterator[str]:
    """Yield the lines of standard input as they arrive.

    Raises:
        DataError: they are not text in UTF-8; see ``data.text.reading``.
    """
    from structattn.text.reading import Notices, read_lines_from

    source = cast(BufferedIOBase, sys.stdin.buffer)  # the annotation says BinaryIO
    return (line.text for line in read_lines_from(source, STANDARD_INPUT, Notices()))


def is_terminal_or_null() -> bool:
    """Return whether standard input is a terminal or /dev/null, as opposed to a file or the output of a program."""
    with suppress(UnsupportedOperation):
        return stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode)
    return False
