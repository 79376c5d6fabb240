"""The clock of a run, and the log of all that depends on it: rates, durations, dates. No result may depend on it."""

import json
import time
from pathlib import Path
from typing import Any, Self

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
