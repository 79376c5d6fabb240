"""The events of a log as it grows."""

import os
from pathlib import Path
from typing import Any, Final

from structattn.runs.logs import parse_event
from structattn.support.errors import DataError
from structattn.support.reading import open_regular

_COMPARED: Final = 256  # bytes before the position of reading, which show whether the log was cut back


class EventReader:
    """Reads a log again and again, each time the complete events that are new.

    A resumed run cuts its log back to the newest checkpoint and writes the later events again. Where the reader notices
    it, because the log is shorter or has other bytes before its position, it begins again: events may come twice.

    Args:
        path: the log file, which may be missing.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._position, self._before, self._lines = path, 0, b"", 0

    def read(self) -> list[dict[str, Any]]:
        """Return the new events.

        Raises:
            DataError: the file cannot be read, or a line is not an event; the message has its number.
        """
        if not self.path.exists():
            return []
        try:
            complete = self._read_complete_lines()
        except OSError as error:
            raise DataError(self.path, f"cannot be read: {error.strerror or error}") from None
        first = self._lines + 1
        lines = complete.split(b"\n")[:-1]
        self._position += len(complete)
        self._before, self._lines = (self._before + complete)[-_COMPARED:], self._lines + len(lines)
        return [parse_event(self.path, number, line) for number, line in enumerate(lines, start=first)]

    def _read_complete_lines(self) -> bytes:
        with open_regular(self.path) as file:
            start = self._position - len(self._before)
            file.seek(start)
            content = file.read(max(0, os.fstat(file.fileno()).st_size - start))
            if content.startswith(self._before):
                new = content[len(self._before) :]
            else:
                self._position, self._before, self._lines = 0, b"", 0
                file.seek(0)
                new = file.read()
        return new[: new.rfind(b"\n") + 1]
