"""The errors that a user may meet, each with the exit code that the command line ends with."""

from pathlib import Path


class StructattnError(Exception):
    """Something outside the program was wrong; the message names what, where, and what was expected."""

    exit_code = 1


class UsageError(StructattnError):
    """A command was called in a way that has no meaning."""

    exit_code = 2


class Interrupted(StructattnError):  # noqa: N818 - it asks to be resumed; nothing went wrong
    """The work was stopped by a signal or a limit and can be resumed from what is on disk."""

    exit_code = 75


class LockedError(StructattnError):
    """Another living process is at work on the same thing."""


class SettingsError(StructattnError):
    """A setting has an unknown name or an impossible value; the message gives its dotted path."""


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
    """The implementation that was asked for cannot run here; the message says why."""


class NonFiniteError(StructattnError):
    """A training step produced a loss or gradient that is not finite; nothing was changed by it."""
