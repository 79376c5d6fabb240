"""How a sweep looks in the terminal while it runs and when it has ended."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from structattn.sweeps.engine import Standing
from structattn.sweeps.table import Result, Row, result_of, selected_of
from structattn.sweeps.trials import Trial
from structattn.sweeps.work import Job

SECONDS_BETWEEN_LINES = 60.0
_SHOWN_AT_MOST = 40  # cells; a sweep with more shows those at work


def _cell(trial: Trial) -> tuple[str, ...]:
    return tuple(trial.cell.values()) or ("all",)


class Bests:
    """The best score of each cell; the run folder of a job that is done is read once."""

    def __init__(self) -> None:
        self._results: dict[Path, Result | None] = {}

    def of(self, done: Sequence[Job]) -> dict[tuple[str, ...], float]:
        """Cell -> the best score of its jobs."""
        for job in done:
            if job.folder not in self._results:
                self._results[job.folder] = result_of(job.trial, job.folder)
        found = [result for job in done if (result := self._results[job.folder])]
        return {_cell(result.trial): result.score for result in selected_of(found)}


def standing_table(standing: Standing, total: int, seconds: float, bests: Bests) -> Group:
    """One row for each cell with trials in hand: waiting, running, done, failed, and the best score so far."""
    running, done = list(standing.running.values()), standing.done
    counts = {
        "waiting": Counter(_cell(job.trial) for job in [*standing.waiting, *(job for _, job in standing.later)]),
        "running": Counter(_cell(job.trial) for job in running),
        "done": Counter(_cell(job.trial) for job in done),
        "failed": Counter(_cell(job.trial) for job, _ in standing.failed),
    }
    best, cells = bests.of(done), list(dict.fromkeys(cell for count in counts.values() for cell in count))
    if len(cells) > _SHOWN_AT_MOST:
        cells = [cell for cell in cells if cell in counts["running"]]
    table = Table("cell", *counts, "best so far")
    for cell in cells:
        score = f"{best[cell]:.4f}" if cell in best else ""
        table.add_row(Text(" ".join(cell)), *(str(count[cell] or "") for count in counts.values()), score)
    ended = len(done) + len(standing.failed)
    left = f", {seconds / ended * (total - ended) / 60:.0f} min left" if ended else ""
    words = Text(f"{ended} of {total} trials, {seconds / 60:.0f} min{left}")
    return Group(table, ProgressBar(total=total, completed=ended, width=60), words)


@contextmanager
def live_view() -> Iterator[Callable[[Standing], None]]:
    """Give a function that shows how far a sweep is: a live table, or a line a minute where no terminal is."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield _Lines(began)
        return
    bests = Bests()
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:

        def watch(standing: Standing) -> None:
            live.update(standing_table(standing, _total(standing), time.monotonic() - began, bests), refresh=True)

        yield watch


def _total(standing: Standing) -> int:
    parts = (standing.waiting, standing.running, standing.done, standing.failed, standing.later)
    return sum(len(part) for part in parts)


class _Lines:
    def __init__(self, began: float) -> None:
        self._last = began

    def __call__(self, standing: Standing) -> None:
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            ended, failed = len(standing.done) + len(standing.failed), len(standing.failed)
            sys.stderr.write(f"sweep: {ended} of {_total(standing)} trials ended, {failed} failed\n")
            self._last = time.monotonic()


def print_rows(rows: Sequence[Row]) -> None:
    """The selected-best table: what was reached on the validation split, how it varies, and the selected's scores."""
    splits = list(dict.fromkeys(split for row in rows for split in row.splits))
    drawn = list(dict.fromkeys(path for row in rows for path in row.drawn))
    table = Table(
        caption="validation score of the best trial, and mean, deviation and half the 95 % interval over all",
        caption_justify="left",
    )
    for axis in rows[0].cell if rows else ():
        table.add_column(axis)
    for heading in ("trials", "best", "mean", "dev.", "±95 %", *splits, *(path.split(".")[-1] for path in drawn)):
        table.add_column(heading, justify="right")
    for row in rows:
        spread = row.validation
        table.add_row(
            *(Text(name) for name in row.cell.values()),
            str(spread.count),
            *(_number(value) for value in (row.best, spread.mean, spread.deviation, spread.interval)),
            *(_split_score(row.splits.get(split, {})) for split in splits),
            *(f"{row.drawn[path]:.3g}" for path in drawn),
        )
    Console().print(table)


def _split_score(scores: Mapping[str, float]) -> str:
    """What counts on a split: BLEU, or accuracy, or the difference from the bound, where there is one."""
    if "BLEU" in scores:
        return f"{scores['BLEU']:.1f} BLEU"
    if "accuracy" in scores:
        return f"{scores['accuracy']:.2%}"
    return _number(scores.get("cross_entropy_difference", scores.get("cross_entropy")))


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"
