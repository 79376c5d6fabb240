"""The event log: append-only JSON lines without a clock, so that a resumed run writes the same bytes."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

from structattn.support.errors import CheckpointError


def event_line(event: str, values: dict[str, Any]) -> bytes:
    """One line of the log. Floats are written with all their digits; NaN and infinities are refused."""
    return json.dumps({"event": event, **values}, allow_nan=False).encode() + b"\n"


class EventLog:
    """An event log that is open for writing.

    Args:
        path: the file.
        length: the bytes of it that are kept, 0 for a new run; what follows them is cut off.
    """

    def __init__(self, path: Path, length: int = 0) -> None:
        size = path.stat().st_size if path.exists() else 0
        if size < length:
            raise CheckpointError(f"{path}: has {size} bytes, fewer than the {length} that the checkpoint counts")
        self.path, self.length = path, length
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._file.truncate(length)

    def write(self, event: str, **values: Any) -> None:
        """Append an event; it is handed to the operating system at once, and flushed to the disk at checkpoints."""
        line = event_line(event, values)
        rest = line
        while rest:  # a full disk may take a part of it; the next attempt then raises
            rest = rest[self._file.write(rest) :]
        self.length += len(line)

    def flush_to_disk(self) -> None:
        """Wait until all events are on the disk."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def last_event(path: Path) -> dict[str, Any] | None:
    """The last event of a log, None if the log is missing, empty, or ends in a broken line."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 65536))
        tail = file.read()
    if not tail.endswith(b"\n"):
        return None
    try:
        event = json.loads(tail[:-1].rpartition(b"\n")[2])
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def events_of(path: Path, kinds: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The whole lines of a log; none where it is missing.

    Args:
        path: the file.
        kinds: of the events that are wanted, all where there are none; others are not decoded, which costs the most.

    Raises:
        CheckpointError: a line is damaged.
    """
    if not path.exists():
        return []
    beginnings = tuple(json.dumps({"event": kind})[:-1].encode() for kind in kinds)
    lines = path.read_bytes().split(b"\n")[:-1]
    try:
        return [json.loads(line) for line in lines if not kinds or line.startswith(beginnings)]
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: a line is not JSON: {error}") from None
