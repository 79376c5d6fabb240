"""A sweep's results beside published numbers and claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from structattn.settings.published import Claim, Published, PublishedValue, ScoreName
from structattn.settings.sweep import fits
from structattn.sweeps.table import Row, Spread
from structattn.sweeps.trials import Cell


@dataclass(frozen=True)
class Comparison:
    """A published number and ours, both in the unit of print.

    Args:
        source: paper and table.
        cell: of the grid.
        published: the number.
        deviation: as printed.
        ours: None where no trial of the cell has ended, or none was scored.
        trials: how many ours is made of.
        interval: half our 95 % interval; None for one trial, and for what is no mean.
        inside: whether the published number lies in our interval, widened by its rounding; None without an interval.
    """

    source: str
    cell: Cell
    published: float
    deviation: float | None
    ours: float | None
    trials: int
    interval: float | None
    inside: bool | None


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds for a cell.

    Args:
        says: the claim.
        cell: of the grid.
        ours: the cell's number; None where there is none yet.
        bound: what it is compared with: a number, or that of another cell; None where there is none yet.
        holds: None where one of them is missing.
    """

    says: str
    cell: Cell
    ours: float | None
    bound: float | None
    holds: bool | None


def comparisons_of(tables: Sequence[Published], rows: Sequence[Row]) -> list[Comparison]:
    """All published numbers with ours, in their order."""
    return [_comparison(table, value, rows) for table in tables for value in table.values]


def _comparison(table: Published, value: PublishedValue, rows: Sequence[Row]) -> Comparison:
    row = _row_of(value.cell, rows)
    ours = None if row is None else number_of(row, table)
    ours = None if ours is None else ours / table.unit
    spread = None if row is None else spread_of_score(row, table.score)
    interval = None  # it is that of the mean
    if table.of == "mean" and spread is not None and spread.interval is not None:
        interval = spread.interval / table.unit
    inside = None
    if ours is not None and interval is not None:
        inside = abs(ours - value.value) <= interval + table.rounding
    trials = 0 if ours is None or spread is None else spread.count
    return Comparison(table.source, value.cell, value.value, value.deviation, ours, trials, interval, inside)


def verdicts_of(claims: Sequence[Claim], cells: Sequence[Cell], rows: Sequence[Row]) -> list[Verdict]:
    """Every claim on every cell of the grid that it speaks of."""
    return [_verdict(claim, cell, rows) for claim in claims for cell in cells if fits(cell, claim.cell)]


def _verdict(claim: Claim, cell: Cell, rows: Sequence[Row]) -> Verdict:
    ours = _of_cell(claim, cell, rows)
    other = claim.below if claim.below is not None else claim.above
    limit = claim.at_most if claim.at_most is not None else claim.at_least
    bound = limit if other is None else _of_cell(claim, {**cell, **other}, rows)
    holds = None
    if ours is not None and bound is not None:
        upper = claim.at_most is not None or claim.below is not None
        met = ours < bound if upper else ours > bound
        holds = met or (other is None and ours == bound)
    return Verdict(claim.says, cell, ours, bound, holds)


def _of_cell(score: ScoreName, cell: Mapping[str, str], rows: Sequence[Row]) -> float | None:
    row = _row_of(cell, rows)
    return None if row is None else number_of(row, score)


def _row_of(cell: Mapping[str, str], rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row.cell == cell), None)


def number_of(row: Row, score: ScoreName) -> float | None:
    """The number of a cell that is meant; None where it was not scored so."""
    if score.of == "selected":
        if score.score == "validation":
            return row.best
        split, name = score.score.split(".")
        return row.splits.get(split, {}).get(name)
    spread = spread_of_score(row, score.score)
    found: float | None = None if spread is None else getattr(spread, score.of)
    return found


def spread_of_score(row: Row, score: str) -> Spread | None:
    """How a score lies over the trials of a cell; None where none was scored so."""
    if score == "validation":
        return row.validation
    split, name = score.split(".")
    return row.over_trials.get(split, {}).get(name)
