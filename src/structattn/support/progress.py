"""Progress on standard error: a bar with rate and remaining time on a terminal, otherwise one line per minute."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 60.0
_TRACK_EVERY = 1000
_Item = TypeVar("_Item")


class _Lines:
    """Progress in a log file: one line per minute, none for shorter work."""

    def __init__(self, description: str, total: int | None, unit: str, done: int) -> None:
        self._labels = description, "" if total is None else f" of {total}", unit
        self._done, self._note, self._rate_from = done, "", done
        self._last = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        self._done, self._note = self._done + count, note or self._note
        passed = time.monotonic() - self._last
        if passed < SECONDS_BETWEEN_LINES:
            return
        description, total, unit = self._labels
        rate = (self._done - self._rate_from) / passed
        parts = [f"{description}: {self._done}{total} {unit}".rstrip(), f"{rate:.1f}/s", self._note]
        sys.stderr.write(", ".join(part for part in parts if part) + "\n")
        self._last, self._rate_from = time.monotonic(), self._done


@contextmanager
def progress(description: str, total: int | None, unit: str = "", done: int = 0) -> Iterator[Callable[..., None]]:
    """Show progress while the block runs.

    Args:
        description: what is being done.
        total: the number of units of work; None if unknown.
        unit: the name of a unit.
        done: the number of units that were done before, by an interrupted run; they do not count in the rate.

    Yields:
        ``advance(count=1, note="")``, which moves the bar.
    """
    if not sys.stderr.isatty():
        yield _Lines(description, total, unit, done).advance
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total, completed=done, note="", rate="")

        def advance(count: int = 1, note: str = "") -> None:
            speed = bar.tasks[0].speed
            rate = f"{speed:.1f}/s" if speed else ""
            bar.update(task, advance=count, note=note or bar.tasks[0].fields["note"], rate=rate)

        yield advance


def track(items: Iterable[_Item], advance: Callable[..., None]) -> Iterator[_Item]:
    """Yield the items, and call ``advance`` with their number after every 1000 and at the end."""
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if count % _TRACK_EVERY == 0:
            advance(_TRACK_EVERY)
    advance(count % _TRACK_EVERY)
