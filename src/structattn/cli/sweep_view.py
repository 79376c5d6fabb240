"""Show the progress and the results of a sweep in the terminal."""

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

from structattn.cli.output import literal
from structattn.sweeps.scheduler import SweepStatus
from structattn.sweeps.table import TableRow, TrialResult, read_trial_result, select_best
from structattn.sweeps.trials import Trial
from structattn.sweeps.worker import Job

SECONDS_BETWEEN_LINES = 60.0
_MAX_CELLS = 40  # a sweep with more cells shows those that are running


def _cell(trial: Trial) -> tuple[str, ...]:
    return tuple(trial.cell.values()) or ("all",)


class BestScores:
    """Best score of each cell; the run folder of a completed job is read once."""

    def __init__(self) -> None:
        self._results: dict[Path, TrialResult | None] = {}

    def of(self, done: Sequence[Job]) -> dict[tuple[str, ...], float]:
        """Return cell -> the best score of its jobs."""
        for job in done:
            if job.run_dir not in self._results:
                self._results[job.run_dir] = read_trial_result(job.trial, job.run_dir, job.trial_results)
        found = [result for job in done if (result := self._results[job.run_dir])]
        return {_cell(result.trial): result.score for result in select_best(found)}


def status_table(status: SweepStatus, total: int, seconds: float, best_scores: BestScores) -> Group:
    """One row per cell with its numbers of waiting, running, done and failed trials, and its best score so far."""
    running, done = list(status.running.values()), status.done
    counts = {
        "waiting": Counter(_cell(job.trial) for job in [*status.waiting, *(job for _, job in status.delayed)]),
        "running": Counter(_cell(job.trial) for job in running),
        "done": Counter(_cell(job.trial) for job in done),
        "failed": Counter(_cell(job.trial) for job, _ in status.failed),
    }
    best, cells = best_scores.of(done), list(dict.fromkeys(cell for count in counts.values() for cell in count))
    if len(cells) > _MAX_CELLS:
        cells = [cell for cell in cells if cell in counts["running"]]
    table = Table("cell", *counts, "best so far")
    for cell in cells:
        score = f"{best[cell]:.4f}" if cell in best else ""
        table.add_row(literal(" ".join(cell)), *(str(count[cell] or "") for count in counts.values()), score)
    ended = len(done) + len(status.failed)
    left = f", {seconds / ended * (total - ended) / 60:.0f} min left" if ended else ""
    words = literal(f"{ended} of {total} trials, {seconds / 60:.0f} min{left}")
    return Group(table, ProgressBar(total=total, completed=ended, width=60), words)


@contextmanager
def live_view() -> Iterator[Callable[[SweepStatus], None]]:
    """Yield a function that shows the status of a sweep: a live table, or one line per minute without a terminal."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield _Lines(began)
        return
    best_scores = BestScores()
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:

        def show(status: SweepStatus) -> None:
            live.update(status_table(status, status.num_jobs, time.monotonic() - began, best_scores), refresh=True)

        yield show


class _Lines:
    def __init__(self, began: float) -> None:
        self._last = began

    def __call__(self, status: SweepStatus) -> None:
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            ended, failed = len(status.done) + len(status.failed), len(status.failed)
            sys.stderr.write(f"sweep: {ended} of {status.num_jobs} trials ended, {failed} failed\n")
            self._last = time.monotonic()


def print_rows(rows: Sequence[TableRow]) -> None:
    """Print the results: validation scores of each cell, and the scores of the selected trial on other splits."""
    splits = list(dict.fromkeys(split for row in rows for split in row.splits))
    sampled = list(dict.fromkeys(path for row in rows for path in row.sampled))
    table = Table(
        caption="validation score: best trial; mean, standard deviation and half the 95 % interval over all trials",
        caption_justify="left",
    )
    for axis in rows[0].cell if rows else ():
        table.add_column(literal(axis))
    for heading in ("trials", "best", "mean", "std", "±95 %", *splits, *(path.split(".")[-1] for path in sampled)):
        table.add_column(literal(heading), justify="right")
    for row in rows:
        spread = row.validation
        table.add_row(
            *(literal(name) for name in row.cell.values()),
            str(spread.count),
            *(_number(value) for value in (row.best, spread.mean, spread.deviation, spread.interval)),
            *(_split_score(row.splits.get(split, {})) for split in splits),
            *(f"{row.sampled[path]:.3g}" for path in sampled),
        )
    Console().print(table)


def _split_score(scores: Mapping[str, float]) -> str:
    """The main score of a split: BLEU, accuracy, the difference from the lower bound, or the cross-entropy."""
    if "BLEU" in scores:
        return f"{scores['BLEU']:.1f} BLEU"
    if "accuracy" in scores:
        return f"{scores['accuracy']:.2%}"
    return _number(scores.get("cross_entropy_difference", scores.get("cross_entropy")))


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"
