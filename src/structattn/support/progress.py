"""Progress on standard error: a bar with rates and times on a terminal, otherwise a line per note, or per minute.

Several processes that work for one command share its terminal or log: see ``progress_in_worker``.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

SECONDS_BETWEEN_LINES = 60.0
Advance = Callable[..., object]
"""Called with the number of units that have been done since, for example of lines."""

_TRACK_EVERY = 1000
_Item = TypeVar("_Item")
_worker: ContextVar[str | None] = ContextVar("_worker", default=None)


def _status(rate: float, tokens_per_second: float, counted: str, loss: float | None) -> list[str]:
    parts = [f"{rate:.1f}/s"]
    if tokens_per_second:
        parts.append(f"{tokens_per_second:,.0f} {counted}/s")
    if loss is not None:
        parts.append(f"loss {loss:.4f}")
    return parts


class _Lines:
    """Progress in a log file: one line per note, and per minute without one; none for shorter work."""

    def __init__(
        self, description: str, total: int | None, unit: str, done: int, clock: Callable[[], str], counted: str
    ) -> None:
        self._counted = counted
        self._labels, self._clock = (description, "" if total is None else f" of {total}", unit), clock
        self._done, self._note = done, ""
        self._loss: float | None = None
        self._since(time.monotonic())

    def _since(self, now: float) -> None:
        self._last, self._rate_from, self._tokens = now, self._done, 0

    def advance(self, count: int = 1, note: str = "", *, tokens: int = 0, loss: float | None = None) -> None:
        self._done, self._note = self._done + count, note or self._note
        self._tokens += tokens
        self._loss = self._loss if loss is None else loss
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN_LINES and not note:
            return
        description, total, unit = self._labels
        seconds = max(now - self._last, 1e-3)
        status = _status((self._done - self._rate_from) / seconds, self._tokens / seconds, self._counted, self._loss)
        parts = [f"{description}: {self._done}{total} {unit}".rstrip(), self._clock(), *status, self._note]
        sys.stderr.write(", ".join(part for part in parts if part) + "\n")
        self._since(now)


class _TwoLines(Progress):
    """A bar with counts and times; below it rates, loss and note, for which 80 columns have no room beside it."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        fields = self.tasks[0].fields if self.tasks else {}
        if text := ", ".join(part for part in (fields.get("status"), fields.get("note")) if part):
            yield Text(text)


class _Bar:
    """Progress on a terminal."""

    def __init__(
        self, bar: Progress, description: str, total: int | None, done: int, clock: Callable[[], str], counted: str
    ) -> None:
        self._bar, self._clock, self._counted = bar, clock, counted
        self._task = bar.add_task(description, total=total, completed=done, note="", status="")
        self._count = self._tokens = 0
        self._loss: float | None = None

    def advance(self, count: int = 1, note: str = "", *, tokens: int = 0, loss: float | None = None) -> None:
        self._count, self._tokens = self._count + count, self._tokens + tokens
        self._loss = self._loss if loss is None else loss
        (task,) = self._bar.tasks
        speed = task.speed or 0.0
        per_second = speed * self._tokens / max(1, self._count)
        status = _status(speed, per_second, self._counted, self._loss) if speed else []
        status = list(filter(None, (self._clock(), *status)))
        self._bar.update(self._task, advance=count, note=note or task.fields["note"], status=", ".join(status))


@contextmanager
def progress(
    description: str,
    total: int | None,
    unit: str = "",
    done: int = 0,
    clock: Callable[[], str] = str,
    counted: str = "tokens",
) -> Iterator[Callable[..., None]]:
    """Show progress while the block runs.

    Args:
        description: what is being done.
        total: the number of units of work; None if unknown.
        unit: the name of a unit.
        done: the number of units that were done before, by an interrupted run; they do not count in the rate.
        clock: returns how much of a limited time has passed; an empty text if the time is not limited.
        counted: the name of what ``tokens`` counts.

    Yields:
        ``advance(count=1, note="", tokens=0, loss=None)``, which moves the bar. The note and the loss stay until the
        next ones; tokens are those of these units, shown per second as ``counted``.
    """
    worker = _worker.get()
    if not sys.stderr.isatty():
        named = description if worker is None else f"{worker}, {description}"
        yield _Lines(named, total, unit, done, clock, counted).advance
        return
    if worker is not None:
        yield show_nothing
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
    )
    with _TwoLines(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, description, total, done, clock, counted).advance


@contextmanager
def progress_in_worker(name: str) -> Iterator[None]:
    """Name the lines in a log by the worker that writes them, and show no bars: the terminal is the command's."""
    token = _worker.set(name)
    try:
        yield
    finally:
        _worker.reset(token)


def show_nothing(count: int = 1, note: str = "", *, tokens: int = 0, loss: float | None = None) -> None:
    """Show no progress."""


def track(items: Iterable[_Item], advance: Advance) -> Iterator[_Item]:
    """Yield the items, and call ``advance`` with their number after every 1000 and at the end."""
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if count % _TRACK_EVERY == 0:
            advance(_TRACK_EVERY)
    advance(count % _TRACK_EVERY)
