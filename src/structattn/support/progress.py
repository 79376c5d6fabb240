"""One progress bar on standard error, with rate and remaining time; silent where nobody looks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def progress(description: str, total: int | None, unit: str = "", done: int = 0) -> Iterator[Callable[..., None]]:
    """Give ``advance(count=1, note="")``, which moves the bar; nothing is drawn unless stderr is a terminal.

    ``done`` of the ``total`` were done before, by an interrupted run; they do not count in the rate.
    """
    if not sys.stderr.isatty():
        yield lambda count=1, note="": None
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
