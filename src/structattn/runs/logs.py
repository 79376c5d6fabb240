"""Logs of a run: the event log, byte-identical after a resume, and the timing log, which no result depends on."""

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, Self

from structattn.runs.checkpoint import Count, LogPrefix
from structattn.support.errors import CheckpointError
from structattn.support.files import flush_to_disk, open_for_appending
from structattn.support.json_files import Shape, check_shape, parse_object
from structattn.support.reading import chunks, content_of, open_regular, parse_json, read_bytes, read_errors

MAX_LOG_BYTES = 1 << 32

NO_EVENTS = LogPrefix()


class _Train(Shape):
    update: Count
    epoch: Count
    loss: float
    tokens: Count
    learning_rate: float


class _Validation(Shape):
    update: Count
    cross_entropy: float
    perplexity: float
    lower_bound: float | None
    cross_entropy_difference: float | None
    accuracy: float | None = None
    bleu: float | None = None
    improved: bool


_SHAPES: Mapping[str, type[Shape]] = MappingProxyType({"train": _Train, "validation": _Validation})


class EventLog:
    """Event log, opened for writing.

    Args:
        path: the log file, JSON lines.
        prefix: what to keep, nothing for a new run; the rest of the file is truncated.

    Raises:
        CheckpointError: the file is shorter than the prefix, or has another beginning, or is not a regular file.
    """

    def __init__(self, path: Path, prefix: LogPrefix = NO_EVENTS) -> None:
        require_own_file(path)
        self._digest = digest_of_prefix(path, prefix)
        self.path, self.length = path, prefix.length
        self._file: BinaryIO = open_for_appending(path, prefix.length)

    @property
    def prefix(self) -> LogPrefix:
        """The log as it is now."""
        return LogPrefix(self.length, self._digest.hexdigest())

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
        self._digest.update(line)

    def flush_to_disk(self) -> None:
        """Flush all events to disk."""
        flush_to_disk(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def require_own_file(path: Path) -> None:
    """Check that a log is a regular file of its run, or missing: it is truncated, and a link may lead anywhere.

    Raises:
        CheckpointError: it is something else.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise CheckpointError(f"{path}: is not a regular file")


def digest_of_prefix(path: Path, prefix: LogPrefix) -> "hashlib._Hash":
    """Return the digest of the beginning of a log, to be continued, after a comparison with what was recorded.

    Raises:
        CheckpointError: the file cannot be read, is shorter, or has another beginning.
    """
    digest = hashlib.sha256()
    if not prefix.length:
        return digest
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < prefix.length:
                raise CheckpointError(f"{path}: has {size} bytes, fewer than the {prefix.length} that were recorded")
            for chunk in chunks(file, prefix.length):
                digest.update(chunk)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
    if digest.hexdigest() != prefix.sha256:
        raise CheckpointError(
            f"{path}: its first {prefix.length} bytes have changed: their SHA-256 was {prefix.sha256} and is "
            f"{digest.hexdigest()}"
        )
    return digest


def last_event(path: Path) -> dict[str, Any] | None:
    """Return the last event of a log, None if the log is missing, empty or ends in an invalid line.

    Raises:
        CheckpointError: the file cannot be read.
    """
    if not path.exists():
        return None
    try:
        tail = _tail(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not tail.endswith(b"\n"):
        return None
    try:
        event = parse_json(tail[:-1].rpartition(b"\n")[2])
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _tail(path: Path) -> bytes:
    """Return the last 64 KiB of a log."""
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
        return file.read(65536)


def events_of(path: str | PathLike[str], kinds: Sequence[str] = (), length: int | None = None) -> list[dict[str, Any]]:
    """Return the events of a log, without an incomplete last line. A missing log has no events.

    ``kinds``: of events to return; empty: all. Lines of other kinds are not parsed, which saves time. ``length``:
    number of bytes to read; None: all.

    Raises:
        DataError: the file cannot be read, or a line is not an event; the message has its number.
    """
    path = Path(path)
    if not path.exists():
        return []
    content = content_of(path, MAX_LOG_BYTES)[:length]
    beginnings = tuple(json.dumps({"event": kind})[:-1].encode() for kind in kinds)
    lines = enumerate(content.split(b"\n")[:-1], start=1)
    return [parse_event(path, number, line) for number, line in lines if not kinds or line.startswith(beginnings)]


def parse_event(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Return the event of a line.

    Raises:
        DataError: it is none; the message has the path and the line's number.
    """
    event = parse_object(line, path, number)
    return check_shape(_SHAPES.get(str(event.get("event")), Shape), event, path, number)


SECONDS_BETWEEN_RATES = 10.0


class Timing:
    """Timing log of a run; training time accumulates over all starts."""

    def __init__(self, path: Path) -> None:
        require_own_file(path)
        self._earlier = trained_seconds(path)
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


class NoLog:
    """Event log and timing log of a process that does not write the run folder, where other processes train, too."""

    prefix = NO_EVENTS
    seconds = minutes_since_checkpoint = 0.0

    def write(self, event: str, **values: Any) -> None:
        """Log nothing."""

    def flush_to_disk(self) -> None:
        """Flush nothing."""

    def record(self, event: str, **values: Any) -> None:
        """Log nothing."""

    def after_update(self, update: int, num_tokens: int) -> None:
        """Log nothing."""

    def after_checkpoint(self, update: int, began: float) -> None:
        """Log nothing."""


def mean_rate(path: Path) -> float | None:
    """Return the mean of the logged rates in tokens per second; None if there are none. Damaged lines are left out."""
    if not path.exists():
        return None
    rates = []
    for line in read_bytes(path).split(b"\n"):
        try:
            rates.append(float(parse_json(line)["tokens_per_second"]))
        except (ValueError, KeyError, TypeError):
            continue
    finite = [rate for rate in rates if 0 <= rate < math.inf]
    return sum(finite) / len(finite) if finite else None


def trained_seconds(path: Path) -> float:
    """Return the seconds of training of all starts until now from the timing log; end an incomplete last line first."""
    if not path.exists():
        return 0.0
    lines = _tail(path).split(b"\n")
    if lines[-1]:
        with open_for_appending(path) as file:
            file.write(b"\n")
    for line in reversed(lines):
        try:
            return max(0.0, float(parse_json(line)["seconds"]))
        except (ValueError, KeyError, TypeError):
            continue
    return 0.0


_COMPARED: Final = 256  # bytes before the position of reading, which show whether the log was cut back


class EventReader:
    """Reads a log again and again, each time the complete events that are new.

    A resumed run cuts its log back to the newest checkpoint and writes the later events again. Where the reader notices
    it, because the log is shorter or has other bytes before its position, it begins again: events may come twice.

    Args:
        path: the log file, which may be missing.
        length: number of bytes to read; None: all.
    """

    def __init__(self, path: Path, length: int | None = None) -> None:
        self.path, self._position, self._before, self._lines = path, 0, b"", 0
        self._length = MAX_LOG_BYTES if length is None else length

    def read(self) -> list[dict[str, Any]]:
        """Return the new events.

        Raises:
            DataError: the file cannot be read, or a line is not an event; the message has its number.
        """
        if not self.path.exists():
            return []
        with read_errors(self.path):
            complete = self._read_complete_lines()
        first = self._lines + 1
        lines = complete.split(b"\n")[:-1]
        self._position += len(complete)
        self._before, self._lines = (self._before + complete)[-_COMPARED:], self._lines + len(lines)
        return [parse_event(self.path, number, line) for number, line in enumerate(lines, start=first)]

    def _read_complete_lines(self) -> bytes:
        with open_regular(self.path) as file:
            start = self._position - len(self._before)
            file.seek(start)
            size = min(os.fstat(file.fileno()).st_size, self._length)
            content = file.read(max(0, size - start))
            if content.startswith(self._before):
                new = content[len(self._before) :]
            else:
                self._position, self._before, self._lines = 0, b"", 0
                file.seek(0)
                new = file.read(size)
        return new[: new.rfind(b"\n") + 1]
