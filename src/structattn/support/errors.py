"""The errors reported to users, with the exit codes of the command line."""

import errno
from pathlib import Path
from typing import Final

DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, and of a quota or file size limit that is reached."""


def explained(error: OSError) -> str:
    """Return the reason of an error of the operating system, with what to do where the disk is full."""
    advice = "; free some disk space and run the same command again" if error.errno in DISK_FULL else ""
    return f"{error.strerror or error}{advice}"


def quoted(value: object, most: int = 60) -> str:
    """Return the representation of a value in at most ``most`` characters, its closing quote or bracket included."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 2]}…{text[-1]}"


def described(error: OSError) -> str:
    """Return the path and the reason of an error of the operating system."""
    return f"{error.filename}: {explained(error)}" if error.filename else explained(error)


class StructattnError(Exception):
    """Base class of errors caused by input or environment; the message gives problem, location and expectation."""

    exit_code = 1


class UsageError(StructattnError):
    """A command or function was called with invalid arguments."""

    exit_code = 2


class Interrupted(StructattnError):  # noqa: N818 - not a failure: the work can be resumed
    """The work was stopped by a signal or a limit, and can be resumed from disk."""

    exit_code = 75


class ReportedError(StructattnError):
    """Another process has reported why the processes of a run end; this one ends without a message."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("another process has reported the error")
        self.exit_code = exit_code


class LockedError(StructattnError):
    """Another running process holds the lock."""


class SettingsError(StructattnError):
    """A setting has an unknown name or an invalid value; the message gives its dotted path."""


class DataError(StructattnError):
    """A data file cannot be used.

    Args:
        path: the file.
        reason: what was found, and what was expected.
        line: the line, counted from 1.
        column: the byte column, counted from 1.
    """

    def __init__(self, path: Path | str, reason: str, line: int | None = None, column: int | None = None) -> None:
        where = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{where}: {reason}")
        self.path, self.reason, self.line, self.column = Path(path), reason, line, column


class CheckpointError(StructattnError):
    """A checkpoint is missing, damaged, or belongs to other settings or data."""


class ImplementationUnavailableError(StructattnError):
    """The requested implementation cannot run here; the message gives the reason."""


class NonFiniteError(StructattnError):
    """A training step produced a loss or gradient that is not finite; the parameters were not updated."""


class BrokenContractError(AssertionError):
    """Code of a plugin, or of this package, does something else than its contract says."""
