"""Compare the results of a sweep with published numbers and claims."""

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from structattn.metrics.statistics import SampleStatistics
from structattn.metrics.verdicts import Difference, Judgement, judge, mean_difference, share_difference
from structattn.report.page import MISSING, short
from structattn.settings.base import leaves
from structattn.settings.published import Claim, PublishedTable, PublishedValue, ScoreName
from structattn.settings.sweep import SweepSettings, matches
from structattn.sweeps.table import TableRow
from structattn.sweeps.trials import Cell, cell_settings


@dataclass(frozen=True)
class PublishedComparison:
    """A published number and ours, both in the unit of the publication.

    Args:
        ours: our number; None if no trial of the cell has ended or been scored.
        trials: the number of trials behind our number.
        interval: half the width of our 95 % interval; None for a single trial or a number that is not a mean.
        inside: whether the published number lies in our interval, widened by its rounding; None without an interval
            and for a different configuration.
        differences: how our configuration differs from the published one; empty: it is the same.
    """

    source: str
    cell: Cell
    published: float
    deviation: float | None
    ours: float | None
    trials: int
    interval: float | None
    inside: bool | None
    differences: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, str, str, str, str]:
        """The published number, ours, its interval, its trials, and whether the published one is inside, for tables."""
        published = f"{self.published:g}" if self.deviation is None else f"{self.published:g} ± {self.deviation:g}"
        verdict = {True: "inside", False: "outside", None: MISSING}[self.inside]
        return published, short(self.ours), short(self.interval), str(self.trials), verdict


@dataclass(frozen=True)
class ClaimResult:
    """What the trials of a cell of the grid say of a claim.

    Args:
        ours: the number of the cell; None if missing.
        bound: the number that it is compared with, a constant or that of another cell; None if missing.
        judgement: whether the claim holds over seeds; None if one of the two numbers is missing.
        missing: the cells without the score.
    """

    description: str
    cell: Cell
    ours: float | None
    bound: float | None
    judgement: Judgement | None
    missing: tuple[Cell, ...] = ()

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Our number, the one that it is compared with, their difference and the verdict, for tables."""
        without = " and ".join(", ".join(cell.values()) for cell in self.missing)
        reason = f"no trial{f' of {without}' if without else ''} has the score"
        judged = (MISSING, reason) if self.judgement is None else self.judgement.texts
        return short(self.ours), short(self.bound), *judged


def compare_with_published(sweep: SweepSettings, rows: Sequence[TableRow]) -> list[PublishedComparison]:
    """Return every published number with ours and the differences between the configurations, in the recipe's order."""
    return [_comparison(sweep, table, value, rows) for table in sweep.published for value in table.values]


def _comparison(
    sweep: SweepSettings, table: PublishedTable, value: PublishedValue, rows: Sequence[TableRow]
) -> PublishedComparison:
    """Compare a published number with that of its cell."""
    differences = configuration_differences(sweep, table, value)
    row = _find_row(value.cell, rows)
    ours = None if row is None else row_score(row, table)
    ours = None if ours is None else ours / table.unit
    spread = None if row is None else score_statistics(row, table)
    interval = None  # the interval belongs to the mean
    if table.statistic == "mean" and spread is not None and spread.interval is not None:
        interval = spread.interval / table.unit
    inside = None
    if ours is not None and interval is not None and not differences:
        inside = abs(ours - value.value) <= interval + table.rounding
    trials = 0
    if ours is not None and row is not None:
        selected_from = row.validation.count if row.savings is None else len(row.savings.trials)
        trials = selected_from if table.statistic == "selected" or spread is None else spread.count
    return PublishedComparison(
        table.source, value.cell, value.value, value.deviation, ours, trials, interval, inside, differences
    )


def check_claims(claims: Sequence[Claim], cells: Sequence[Cell], rows: Sequence[TableRow]) -> list[ClaimResult]:
    """Check every claim on every grid cell that its pattern matches."""
    return [check_claim(claim, cell, rows) for claim in claims for cell in cells if matches(cell, claim.cell)]


def check_claim(claim: Claim, cell: Cell, rows: Sequence[TableRow]) -> ClaimResult:
    """Check a claim on one cell.

    Means and shares are judged over the seeds of the trials; the best, least or greatest of them is one number, which
    has no interval. A share is decided while trials are trained only if these cannot change the verdict.
    """
    versus = claim.below if claim.below is not None else claim.above
    limit = claim.at_most if claim.at_most is not None else claim.at_least
    row, compared = _find_row(cell, rows), None if versus is None else _find_row({**cell, **versus}, rows)
    ours = None if row is None else row_score(row, claim)
    bound = limit if compared is None else row_score(compared, claim)
    judgement = None
    if row is None or ours is None or bound is None or (versus is not None and compared is None):
        pass
    elif claim.statistic not in ("mean", "share"):
        judgement = Judgement("undecided", Difference(ours - bound, None), "one number")
    else:
        judgement = _judge_rows(claim, row, bound if compared is None else compared)
    of_cells = [(cell, ours)] if versus is None else [(cell, ours), ({**cell, **versus}, bound)]
    missing = tuple(each for each, found in of_cells if found is None)
    return ClaimResult(claim.description, cell, ours, bound, judgement, missing)


def _judge_rows(claim: Claim, row: TableRow, other: TableRow | float) -> Judgement:
    """Judge a claim on the mean or the share of a cell against those of another, or a bound."""

    def judged(ours: float, others: float) -> Judgement:
        bound = scores_by_seed(claim, other, others) if isinstance(other, TableRow) else other
        above = claim.at_least is not None or claim.above is not None
        difference = share_difference if claim.statistic == "share" else mean_difference
        mine = scores_by_seed(claim, row, ours)
        return judge(mine, bound, above=above, margin=claim.margin, difference=difference)

    judgement, compared = judged(0.0, 0.0), other if isinstance(other, TableRow) else None
    if claim.statistic == "mean":
        return replace(judgement, remark=unscored(claim, row, compared))
    pending = row.pending + (0 if compared is None else compared.pending)
    if not pending or judged(0.0, 1.0).verdict == judged(1.0, 0.0).verdict:
        return judgement
    reason = f"{pending} {'trial has' if pending == 1 else 'trials have'} not ended"
    return Judgement("undecided", Difference(judgement.difference.value, None), reason)


def unscored(score: ScoreName, row: TableRow, other: TableRow | None = None) -> str:
    """Say how many trials of a cell, and of another one, are not behind the mean of a score; empty if all are.

    Those that halving has stopped are not meant to be.
    """
    total, counts = 0, []
    for each, trials in ((row, "trials"), (other, "trials of the other cell")):
        spread = None if each is None or each.savings is not None else score_statistics(each, score)
        if each is not None and spread is not None and spread.count < each.trials:
            total += each.trials - spread.count
            counts.append(f"{each.trials - spread.count} of {each.trials} {trials}")
    return f"{' and '.join(counts)} {'has' if total == 1 else 'have'} no score" if counts else ""


def scores_by_seed(score: ScoreName, row: TableRow, pending: float = 0.0) -> dict[Hashable, float]:
    """Return the scores of a cell's trials by seed, of shares 1 or 0; empty if no trial has that score.

    Those with unknown seeds have keys of their own.

    ``pending``: what trials that have not ended count in a share; others without a score count 0.
    """
    spread = score_statistics(row, score)
    if spread is None:
        return {}
    unknown = [(*row.cell.values(), place) for place in range(spread.count)]
    seeds = row.seeds.get(score.score) or row.seeds.get(score.split) or unknown
    by_seed = dict[Hashable, float](zip(seeds, spread.numbers, strict=True))
    if score.within is None:
        return by_seed
    found: dict[Hashable, float] = {seed: float(number <= score.within) for seed, number in by_seed.items()}
    without = [pending if place < row.pending else 0.0 for place in range(row.trials - spread.count)]
    return found | {(*row.cell.values(), "missing", place): counted for place, counted in enumerate(without)}


def _find_row(cell: Mapping[str, str], rows: Sequence[TableRow]) -> TableRow | None:
    return next((row for row in rows if row.cell == cell), None)


def row_score(row: TableRow, score: ScoreName) -> float | None:
    """Return the number of a cell that ``score`` names; None if the cell has no such score.

    In a share, trials without the score, which failed or have not ended, count as being above the bound.
    """
    if score.statistic == "selected":
        if score.score == "validation":
            return row.best
        return row.splits.get(score.split, {}).get(score.name)
    spread = score_statistics(row, score)
    if spread is None:
        return None
    if score.within is not None:
        return sum(number <= score.within for number in spread.numbers) / max(row.trials, spread.count)
    value: float = getattr(spread, score.statistic)
    return value


def score_statistics(row: TableRow, score: ScoreName) -> SampleStatistics | None:
    """Return the statistics of a score over the trials of a cell; None if no trial has that score."""
    if score.score == "validation":
        return row.validation
    return row.over_trials.get(score.split, {}).get(score.name)


def configuration_differences(sweep: SweepSettings, table: PublishedTable, value: PublishedValue) -> tuple[str, ...]:
    """Return how the cell of a published number differs from the configuration behind the number.

    The published settings are applied to those of the cell; fields that change by that differ. Sampled fields are
    left out. Equal changes of several layers appear once; of a list with more or fewer items their numbers differ, and
    the items that both have are compared.

    Returns:
        One text for each difference; empty if the configuration is the same as far as the recipe states it.

    Raises:
        SettingsError: the published settings are invalid.
    """
    ours = _fields(cell_settings(sweep, value.cell))
    theirs = _fields(cell_settings(sweep, value.cell, {**table.settings, **value.settings}))
    counts, published = _numbers_of_items(ours), _numbers_of_items(theirs)
    unequal = [path for path in counts if counts[path] != published.get(path, counts[path])]
    numbers = (
        f"the number of {_without_indices(path)} is {counts[path]}, published {published[path]}" for path in unequal
    )
    of_one = tuple(f"{path}.{index}." for path in unequal for index in range(*sorted((counts[path], published[path]))))
    changed = (
        f"{_without_indices(path)} is {_shown(ours.get(path))}, published {_shown(theirs.get(path))}"
        for path in dict.fromkeys(chain(ours, theirs))
        if ours.get(path) != theirs.get(path) and path not in sweep.random and not path.startswith(of_one)
    )
    return (*dict.fromkeys(chain(numbers, changed)), *table.differences, *value.differences)


def _numbers_of_items(paths: Iterable[str]) -> dict[str, int]:
    """Return the path of each list that the paths of leaves enter -> the number of its items."""
    found = dict[str, int]()
    for path in paths:
        for index in re.finditer(r"[.]([0-9]+)", path):
            name = path[: index.start()]
            found[name] = max(found.get(name, 0), int(index[1]) + 1)
    return found


def _without_indices(path: str) -> str:
    return re.sub(r"[.][0-9]+", "", path)


def _fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted path and the value of each field; lists of layers are entered, others are values."""
    return dict(leaves(settings, lambda values: any(isinstance(value, Mapping) for value in values)))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
