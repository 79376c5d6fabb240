"""Show a sweep in the terminal: its progress, its results, and how these compare with published numbers and claims."""

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

from structattn.cli.output import literal, numbers_table, print_line, print_table
from structattn.report.page import MISSING, nats
from structattn.settings.training import Budget
from structattn.support.grouping import grouped
from structattn.sweeps.added import AddedRun
from structattn.sweeps.comparison import ClaimResult, PublishedComparison
from structattn.sweeps.outcome import best_validation, validation_score
from structattn.sweeps.scheduler import SweepStatus
from structattn.sweeps.table import Savings, TableRow, describe_savings, names_of_score
from structattn.sweeps.trials import Trial
from structattn.sweeps.worker import Job, outcome_of, result_of

SECONDS_BETWEEN_LINES = 60.0
_MAX_CELLS = 40  # a sweep with more cells shows those that are running


def _cell(trial: Trial) -> tuple[str, ...]:
    return tuple(trial.cell.values()) or ("all",)


class BestScores:
    """Best score of each cell; the run folder of a completed job is read once."""

    def __init__(self) -> None:
        self._scores: dict[tuple[Path, Budget | None], float | None] = {}

    def of(self, done: Sequence[Job]) -> dict[tuple[str, ...], float]:
        """Return cell -> the best score of its jobs."""
        best: dict[tuple[str, ...], float] = {}
        for job in done:
            key = job.run_dir, job.pause_after
            if key not in self._scores:
                self._scores[key] = _score(job)
            if (score := self._scores[key]) is not None:
                best[_cell(job.trial)] = min(score, best.get(_cell(job.trial), score))
        return best


def _score(job: Job) -> float | None:
    """Return the best validation score of a job that is done."""
    if job.pause_after is None:
        result = result_of(job)
        return None if result is None else result.score
    outcome = outcome_of(job)
    best = None if outcome is None else best_validation(outcome.validations)
    return None if best is None else validation_score(best)


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
    halving = any(job.pause_after for job in (*done, *status.unfinished))  # more jobs follow, of other lengths
    left = f", {seconds / ended * (total - ended) / 60:.0f} min left" if ended and not halving else ""
    words = literal(f"{ended} of {total} {'jobs' if halving else 'trials'}, {seconds / 60:.0f} min{left}")
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
    main_scores = [{split: _main_score(scores) for split, scores in row.splits.items()} for row in rows]
    splits = list(dict.fromkeys(split for scores in main_scores for split, score in scores.items() if score))
    halved = [row.savings for row in rows if row.savings is not None]
    sampled = list(dict.fromkeys(path for row in rows for path in row.sampled))
    statistics = "" if halved else "; mean, standard deviation and half the 95 % interval over those that have ended"
    # Trials that remain after halving were selected by this score: the rungs have the statistics over all trials.
    of_trials = ("at rungs", "cost", "best") if halved else ("best", "mean", "std", "±95 %")
    headings = ["trials", *of_trials, *splits, *(path.split(".")[-1] for path in sampled)]
    others = "; further columns are of the best trial" if splits or sampled else ""
    caption = f"{names_of_score(rows)}, on validation: best trial{statistics}{others}"
    table = numbers_table([*rows[0].cell] if rows else [], headings, caption)
    for row, scores in zip(rows, main_scores, strict=True):
        spread = row.validation
        table.add_row(
            *(literal(name) for name in row.cell.values()),
            row.ended,
            *(_of_halving(row.savings) if halved else ()),
            nats(row.best),
            *(() if halved else map(nats, (spread.mean, spread.deviation, spread.interval))),
            *(scores.get(split) or MISSING for split in splits),
            *(f"{row.sampled[path]:.3g}" for path in sampled),
        )
    print_table(table)
    if halved:
        print_line(describe_savings(halved))


def print_added(added: Sequence[AddedRun]) -> None:
    """Print the scores of runs that were trained elsewhere."""
    if not added:
        return
    splits = list(dict.fromkeys(split for each in added for split in each.splits))
    title = "added: trained elsewhere, verified and scored by this version"
    table = numbers_table(["run", *added[0].cell], ["seed", "parameters", *splits], title)
    for each in added:
        scores = (_main_score(each.splits.get(split, {})) or MISSING for split in splits)
        cell = (literal(value) for value in each.cell.values())
        table.add_row(literal(each.name), *cell, str(each.seed), f"{each.parameters:,}", *scores)
    print_table(table)


def _of_halving(savings: Savings | None) -> tuple[str, str]:
    """Return the numbers of trials that were compared at the rungs, and the share of training without halving."""
    if savings is None:
        return "", ""
    return " ".join(str(rung.validation.count) for rung in savings.rungs), savings.share


def _main_score(scores: Mapping[str, float]) -> str | None:
    """The main score of a split or analysis; None if it has none, as the types of errors of contrastive pairs."""
    if "BLEU" in scores:
        return f"{scores['BLEU']:.1f} BLEU"
    for name, unit in (("accuracy", ""), ("f1", " F1"), ("all", "")):  # all: the pairs of BLiMP
        if name in scores:
            return f"{scores[name]:.2%}{unit}"
    cross_entropy = scores.get("cross_entropy_difference", scores.get("cross_entropy"))
    return None if cross_entropy is None else nats(cross_entropy)


def print_comparisons(comparisons: Sequence[PublishedComparison]) -> None:
    """Print one table per source, with one row per published number, and the differences of configuration below."""
    for source, chosen in grouped(comparisons, lambda each: each.source).items():
        notes = list(dict.fromkeys(each.differences for each in chosen if each.differences))
        headings = ["published", "ours", "±95 %", "trials", ""]
        table = numbers_table([*chosen[0].cell], headings, "±95 %: half the confidence interval of our mean", source)
        for each in chosen:
            *numbers, verdict = each.texts
            if each.differences:
                verdict = _mark(notes.index(each.differences) + 1)
            table.add_row(*(literal(name) for name in each.cell.values()), *numbers, verdict)
        print_table(table)
        for number, differences in enumerate(notes, start=1):
            print_line(f"{_mark(number)}: {'; '.join(differences)}")


def _mark(number: int) -> str:
    return f"different configuration ({number})"


def print_claims(claims: Sequence[ClaimResult]) -> None:
    """Print one row per claim and cell."""
    if not claims:
        return
    headings = ["ours", "compared with", "difference (95 %)", ""]
    table = numbers_table(["claim", *claims[0].cell], headings, title="Claims")
    for claim in claims:
        cell = (literal(name) for name in claim.cell.values())
        table.add_row(literal(claim.description), *cell, *map(literal, claim.texts))
    print_table(table)
