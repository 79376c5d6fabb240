"""What the process has from the system: its standard streams, also where they are closed or full, and its memory."""

import ctypes
import errno
import functools
import io
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from structattn.support.errors import StructattnError

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_control_characters(text: str) -> str:
    """Replace control characters, such as those of a file name, by escapes: a terminal would execute them.

    Line feeds are replaced as well, and so are characters that change the direction of text.
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable(text: str) -> str:
    """Return text in which control characters, and what is not Unicode as bytes of a file name, are escapes."""
    return escape_control_characters(text.encode(errors="backslashreplace").decode())


def name_of(path: Path) -> str:
    """Return the name of a file or folder as printable text."""
    return printable(path.resolve().name)


if TYPE_CHECKING:
    from typing_extensions import Buffer


STANDARD_OUTPUT: Final = "standard output"
"""Its name in errors."""


class _StandardOutput(io.FileIO):
    """Standard output, with its name in errors."""

    def write(self, data: "Buffer") -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
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
    with suppress(OSError):  # a terminal that was closed
        os.write(2, text.encode())


STOP_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
"""The signals that end a command so that it can be repeated or resumed."""


def leave_closed_terminal(number: int) -> None:
    """After SIGHUP, let what is still written to a terminal that was closed go nowhere: it would raise an error."""
    if number != getattr(signal, "SIGHUP", None):
        return
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


MIN_ADDRESS_SPACE: Final = 1 << 30  # bytes; torch and the BLAS of NumPy end the process when they cannot be loaded
_MESSAGES: Final = (
    "can't allocate memory",  # torch
    "can't start new thread",  # Python; a thread needs a stack
    "cannot allocate memory",
    "failed to map segment",  # the loader of shared libraries
    "MemoryError",  # a panic of a library in Rust that quotes Python's error
    "OutOfMemory",
    "Resource temporarily unavailable",  # a panic because a thread could not be started
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: Python's error, torch's, the operating system's, or a panic of a Rust library."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM or "failed to map segment" in str(error)
    if isinstance(error, SystemError):  # of code in C that does not check whether it got memory
        return _address_space() is not None
    can_be = isinstance(error, RuntimeError | ImportError) or type(error).__name__ == "PanicException"
    return can_be and any(message.lower() in str(error).lower() for message in _MESSAGES)


def out_of_memory_message(error: BaseException) -> str:
    """Return one line that says that memory ran out and what to do."""
    limit = _address_space()
    raise_it = "" if limit is None else f", or raise the limit on address space ({limit >> 20} MiB; ulimit -v)"
    reason = " ".join(str(error).split())
    message = f"out of memory; use smaller batches, shorter texts, a smaller model or fewer runs at once{raise_it}"
    return f"{message} ({reason})" if reason else message


def require_address_space() -> None:
    """Check that the limit on address space, if there is one, leaves enough to load the libraries.

    Raises:
        StructattnError: it is below ``MIN_ADDRESS_SPACE``.
    """
    limit = _address_space()
    if limit is not None and limit < MIN_ADDRESS_SPACE:
        raise StructattnError(
            f"out of memory: the limit on address space is {limit >> 20} MiB; expected at least "
            f"{MIN_ADDRESS_SPACE >> 20} MiB; raise it (ulimit -v)"
        )


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # on Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


_KEPT: Final = 1 << 30  # bytes
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def keep_freed_memory() -> None:
    """Let the malloc of glibc keep up to 1 GiB of freed memory, for blocks of up to that size.

    By default it returns the memory of a training step or a batch to the system, which clears each page again for the
    next one: a tenth of the time in which a small translation model is trained. Other allocators, and a malloc that the
    environment configures, are left as they are.
    """
    if "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ):
        return
    with suppress(OSError, TypeError, AttributeError):  # no glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)


@functools.cache
def source_commit() -> str | None:
    """Return the git commit of the checkout that this package is in, with ``-dirty`` if it has been edited.

    None if the package is installed elsewhere, or git is not.
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", Path(__file__).name], check=True, capture_output=True)
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"],
            check=True, capture_output=True, text=True, env=environment,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


@contextmanager
def silent_standard_error() -> Iterator[None]:
    """Drop what libraries in C and Rust write to standard error, as the backtrace of a panic that is caught."""
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
