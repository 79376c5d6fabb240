"""Logs of a run: the event log, byte-identical after a resume, and the timing log, which no result depends on."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

from structattn.support.errors import CheckpointError
from structattn.support.files import flush_to_disk, open_for_appending


class EventLog:
    """Event log, opened for writing.

    Args:
        path: the log file, JSON lines.
        length: number of bytes to keep, 0 for a new run; the rest of the file is truncated.

    Raises:
        CheckpointError: the file is shorter than ``length``.
    """

    def __init__(self, path: Path, length: int = 0) -> None:
        size = path.stat().st_size if path.exists() else 0
        if size < length:
            raise CheckpointError(f"{path}: has {size} bytes, fewer than the {length} recorded in the checkpoint")
        self.path, self.length = path, length
        self._file: BinaryIO = open_for_appending(path, length)

    def write(self, event: str, **values: Any) -> None:
        """Append an event, unbuffered. Checkpoints flush it to disk.

        Raises:
            ValueError: a value is NaN or infinite.
        """
        line = json.dumps({"event": event, **values}, allow_nan=False).encode() + b"\n"
        rest = line
        while rest:  # a full disk may accept a part; the next write then raises
            rest = rest[self._file.write(rest) :]
        self.length += len(line)

    def flush_to_disk(self) -> None:
        """Flush all events to disk."""
        flush_to_disk(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def last_event(path: Path) -> dict[str, Any] | None:
    """Return the last event of a log, None if the log is missing, empty or ends in an invalid line."""
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
    """Return the events of a log, without an incomplete last line. A missing log has no events.

    Args:
        path: the log file.
        kinds: kinds of events to return; empty: all. Lines of other kinds are not parsed, which saves time.

    Raises:
        CheckpointError: a line is not JSON.
    """
    if not path.exists():
        return []
    beginnings = tuple(json.dumps({"event": kind})[:-1].encode() for kind in kinds)
    lines = path.read_bytes().split(b"\n")[:-1]
    try:
        return [json.loads(line) for line in lines if not kinds or line.startswith(beginnings)]
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: a line is not JSON: {error}") from None


SECONDS_BETWEEN_RATES = 10.0


class Timing:
    """Timing log of a run; training time accumulates over all starts.

    Args:
        path: the timing log, JSON lines.
    """

    def __init__(self, path: Path) -> None:
        self._earlier = _seconds_of_last_line(path)
        self._file = open_for_appending(path)
        self._start = self._last_checkpoint = self._last_rate = time.monotonic()
        self._updates = self._tokens = 0

    @property
    def seconds(self) -> float:
        """Training time in seconds, summed over all starts."""
        return self._earlier + time.monotonic() - self._start

    @property
    def minutes_since_checkpoint(self) -> float:
        """Minutes since this process last saved a checkpoint, or since it started."""
        return (time.monotonic() - self._last_checkpoint) / 60

    def record(self, event: str, **values: Any) -> None:
        """Append a line with the given values, the training time and the current time."""
        line = {"event": event, **values, "seconds": round(self.seconds, 3), "time": round(time.time(), 3)}
        self._file.write(json.dumps(line).encode() + b"\n")

    def after_update(self, update: int, num_tokens: int) -> None:
        """Count an update; log updates and tokens per second every `SECONDS_BETWEEN_RATES`."""
        self._updates, self._tokens = self._updates + 1, self._tokens + num_tokens
        passed = time.monotonic() - self._last_rate
        if passed >= SECONDS_BETWEEN_RATES:
            updates, tokens_per_second = self._updates / passed, self._tokens / passed
            self.record("rate", update=update, updates_per_second=updates, tokens_per_second=tokens_per_second)
            self._last_rate, self._updates, self._tokens = time.monotonic(), 0, 0

    def after_checkpoint(self, update: int, began: float) -> None:
        """Log a saved checkpoint; ``began`` is the value of `seconds` before saving."""
        self._last_checkpoint = time.monotonic()
        self.record("checkpoint", update=update, duration=round(self.seconds - began, 4))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def _seconds_of_last_line(path: Path) -> float:
    """Return the logged training time of earlier starts; terminate an incomplete last line first."""
    if not path.exists():
        return 0.0
    lines = path.read_bytes().split(b"\n")
    if lines[-1]:
        with open_for_appending(path) as file:
            file.write(b"\n")
    for line in reversed(lines):
        try:
            return float(json.loads(line)["seconds"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0.0
