"""The logs of a run: events, byte-identical after a resume, and timing, on which no result may depend."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

from structattn.support.errors import CheckpointError


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
        # floats keep all their digits; NaN and infinities are refused
        line = json.dumps({"event": event, **values}, allow_nan=False).encode() + b"\n"
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


SECONDS_BETWEEN_RATES = 10.0


class Timing:
    """Measures a run and appends to its timing log; the training time of earlier starts is counted in.

    Args:
        path: the timing log, JSON lines.
    """

    def __init__(self, path: Path) -> None:
        self._earlier = _seconds_of_last_line(path)
        self._file = path.open("ab", buffering=0)
        self._start = self._last_checkpoint = self._last_rate = time.monotonic()
        self._updates = self._tokens = 0

    @property
    def seconds(self) -> float:
        """For how long the run has trained, all starts together."""
        return self._earlier + time.monotonic() - self._start

    @property
    def minutes_since_checkpoint(self) -> float:
        """Minutes since the last checkpoint of this start."""
        return (time.monotonic() - self._last_checkpoint) / 60

    def record(self, event: str, **values: Any) -> None:
        """Append a line."""
        line = {"event": event, **values, "seconds": round(self.seconds, 3), "time": round(time.time(), 3)}
        self._file.write(json.dumps(line).encode() + b"\n")

    def after_update(self, update: int, num_tokens: int) -> None:
        """Count an update; a line with the rate is written now and then."""
        self._updates, self._tokens = self._updates + 1, self._tokens + num_tokens
        passed = time.monotonic() - self._last_rate
        if passed >= SECONDS_BETWEEN_RATES:
            updates, tokens_per_second = self._updates / passed, self._tokens / passed
            self.record("rate", update=update, updates_per_second=updates, tokens_per_second=tokens_per_second)
            self._last_rate, self._updates, self._tokens = time.monotonic(), 0, 0

    def after_checkpoint(self, update: int, began: float) -> None:
        """A checkpoint was saved, begun at this many seconds of the run."""
        self._last_checkpoint = time.monotonic()
        self.record("checkpoint", update=update, duration=round(self.seconds - began, 4))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def _seconds_of_last_line(path: Path) -> float:
    """The time that earlier starts took, as far as the log knows; a broken last line is ended first."""
    if not path.exists():
        return 0.0
    lines = path.read_bytes().split(b"\n")
    if lines[-1]:
        with path.open("ab") as file:
            file.write(b"\n")
    for line in reversed(lines):
        try:
            return float(json.loads(line)["seconds"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0.0
