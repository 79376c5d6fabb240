"""Compare groups of runs over seeds: the cells of a sweep, or run folders by their settings."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from structattn.cli.comparable_runs import differing_settings, require_same_data
from structattn.cli.output import literal, numbers_table, print_table, print_warning
from structattn.metrics.seeds import DifferenceOverSeeds, difference_over_seeds
from structattn.metrics.statistics import SampleStatistics, sample_statistics
from structattn.report.page import MISSING, flattened, nats, percent, points
from structattn.report.runs import Run, read_run
from structattn.report.tables import Column
from structattn.settings.sweep import STOPPED_EARLY, SweepSettings, read_sweep
from structattn.support.errors import StructattnError, UsageError
from structattn.support.grouping import grouped, listed
from structattn.sweeps.outcome import TrialResult
from structattn.sweeps.plan import Plan
from structattn.sweeps.results import is_sweep
from structattn.sweeps.sweep import read_results
from structattn.sweeps.trials import Cell, cells_of
from structattn.sweeps.worker import SweepFolder

_SCORES = (  # the first that all runs have is compared
    Column("difference from the lower bound, in nats per token", ("cross_entropy_difference",), nats),
    Column("BLEU", ("translation", "BLEU", "value"), points),
    Column("accuracy", ("accuracy",), percent),
    Column("cross-entropy, in nats per token", ("cross_entropy",), nats),
)


@dataclass(frozen=True)
class _Trained:
    """A run: its group, its values of the other axes of a sweep, its seed, and its scores on the split."""

    name: str
    group: str
    cell: tuple[str, ...]
    seed: int
    scores: Mapping[str, Any] | None


_Scores = dict[tuple[str, ...], dict[int, float]]
"""Values of the other axes -> seed -> score."""


@dataclass(frozen=True)
class Group:
    """Runs of one model.

    Args:
        difference: from the base; None for the base, and for a group that shares no values of other axes with it.
        cells: the number of combinations of values of other axes that its runs are of; 1 without other axes.
    """

    name: str
    scores: SampleStatistics
    difference: DifferenceOverSeeds | None
    cells: int = 1


def compare_groups(paths: Sequence[Path], by: str | None, base: str | None, split: str) -> tuple[Column, list[Group]]:
    """Return the score that is compared, and the groups, the base first.

    Args:
        paths: the folder of a sweep, or run folders.
        by: an axis of the sweep, None for its cells; or a field of the settings of runs, such as ``model``.
        base: the group that others are compared with; None: that of the first cell, or of the first run.
        split: of the scores, which are those that evaluation wrote.

    Raises:
        UsageError: there is no such axis, field or group, fewer than two groups, or two runs of a group that only have
            the same seed; or runs are of different data, or were not evaluated on the split; or no base is given, and
            the first cell of the sweep has no results; or the sweep has `halving`.
        StructattnError: no trial of the sweep has ended.
    """
    sweeps = [path for path in paths if is_sweep(path)]
    if sweeps and len(paths) > 1:
        raise UsageError(f"{sweeps[0]} is a sweep; expected it alone, or run folders")
    trained, first = _of_sweep(sweeps[0], by, split) if sweeps else _of_runs(paths, by or "model", split)
    score = _common_score(trained, split)
    base = _base(list(dict.fromkeys(each.group for each in trained)), base, first)
    groups = _scores_of_groups(trained, score)
    scores_of_base = groups.pop(base)
    compared = [Group(base, _statistics(scores_of_base), None, len(scores_of_base))]
    for name, scores in groups.items():
        compared.append(Group(name, _statistics(scores), _difference(scores_of_base, scores), len(scores)))
        _warn_of_pairs(compared[0], compared[-1])
    return score, compared


def _warn_of_pairs(base: Group, other: Group) -> None:
    """Warn if a difference is of some of the runs, or has no interval although there are several runs of both."""
    difference, fewer = other.difference, min(base.scores.count, other.scores.count)
    names = f"{other.name} and {base.name}"
    if difference is None:
        print_warning(f"{names} have no values of the other axes in common, so their difference is undecided")
    elif 0 < difference.pairs < fewer:
        print_warning(f"the difference of {names} is of {difference.pairs} pairs alone, and leaves other runs out")
    elif difference.interval is None and fewer > 1:
        print_warning(f"the difference of {names} has no interval, since too few runs are of the same cell and seed")


def _common_score(trained: Sequence[_Trained], split: str) -> Column:
    missing = [each.name for each in trained if each.scores is None]
    if missing:
        raise UsageError(
            f"{missing[0]}: has no scores on {split}; run structattn evaluate, or set `evaluate: {{{split}: all}}` in "
            "the sweep and run it again"
        )
    score = next((each for each in _SCORES if all(each.of(run.scores or {}) is not None for run in trained)), None)
    if score is None:
        raise UsageError(f"{trained[0].name}: has no score that all of these runs have on {split}")
    return score


def _base(groups: Sequence[str], base: str | None, first: str) -> str:
    names = ", ".join(map(repr, groups))
    if len(groups) < 2 or (base is not None and base not in groups):
        expected = "at least two groups" if base is None else f"one group named {base!r}, and others"
        raise UsageError(f"the runs are of {names}; expected {expected}")
    if base is None and first not in groups:
        raise UsageError(f"no trial of the first group, {first!r}, has ended; expected --base with one of {names}")
    return first if base is None else base


def _scores_of_groups(trained: Sequence[_Trained], score: Column) -> dict[str, _Scores]:
    groups: dict[str, _Scores] = {}
    for each in trained:
        of_cell = groups.setdefault(each.group, {}).setdefault(each.cell, {})
        if each.seed in of_cell:
            raise UsageError(f"{each.name}: a second run of {each.group} with seed {each.seed}; expected one a seed")
        of_cell[each.seed] = score.of(each.scores or {}) or 0.0
    return groups


def _statistics(scores: _Scores) -> SampleStatistics:
    return sample_statistics([score for of_cell in scores.values() for score in of_cell.values()])


def _difference(base: _Scores, other: _Scores) -> DifferenceOverSeeds | None:
    """Compare the runs of two groups within each cell that both have; None if they share no cell."""
    cells = [cell for cell in base if cell in other]
    if not cells:
        return None
    if len(cells) == 1:
        return difference_over_seeds(base[cells[0]], other[cells[0]])
    first, second = (
        {(cell, seed): scores[cell][seed] for cell in cells for seed in scores[cell]} for scores in (base, other)
    )
    if len(first.keys() & second.keys()) > 1:
        return difference_over_seeds(first, second)
    # Welch's interval would take the spread over cells for that over seeds.
    within = [difference_over_seeds(base[cell], other[cell]).mean for cell in cells]
    return DifferenceOverSeeds(fmean(within), None, 0)


def _of_sweep(path: Path, by: str | None, split: str) -> tuple[list[_Trained], str]:
    """Return the trials of a sweep that have ended, in the order of the grid, and the group of its first cell."""
    sweep, folder = read_sweep(SweepFolder(path).settings), SweepFolder(path.absolute())
    if by is not None and by not in sweep.grid:
        raise UsageError(f"--by {by}: the sweep has no such axis; expected one of {', '.join(sweep.grid)}")
    if sweep.halving is not None:
        raise UsageError(f"{path}: mean of the scores on {split} needs all trials, but {STOPPED_EARLY}")
    cells = [cell for cell in cells_of(sweep) if sweep.restarts_of(cell)]
    results = read_results(folder, Plan(sweep, folder).brackets())
    ended = grouped(results, lambda result: tuple(result.trial.cell.values()))
    if not ended:
        raise StructattnError(
            f"{path}: none of the {sum(map(sweep.restarts_of, cells))} trials of the sweep has ended in this folder; "
            "compare reads run folders: results in a file alone are shown by structattn report --trial-results FILE"
        )
    _warn_of_missing(sweep, cells, ended, by)
    trained = []
    for cell in cells:
        rest = tuple(value for axis, value in cell.items() if by not in (None, axis))
        for result in ended.get(tuple(cell.values()), ()):
            trial, scores = result.trial, result.outcome.scores.get(split)
            trained.append(_Trained(trial.title, _group(cell, by), rest, trial.settings.seed, scores))
    return trained, _group(cells[0], by)


def _warn_of_missing(
    sweep: SweepSettings, cells: Sequence[Cell], ended: Mapping[tuple[str, ...], Sequence[TrialResult]], by: str | None
) -> None:
    missing: Counter[str] = Counter()
    for cell in cells:
        missing[_group(cell, by)] += sweep.restarts_of(cell) - len(ended.get(tuple(cell.values()), ()))
    if count := missing.total():
        of_groups = listed([f"{number} of {group}" for group, number in missing.items() if number])
        trials = sum(map(sweep.restarts_of, cells))
        reason = "they failed, diverged or have not ended in this folder"
        print_warning(f"{count} of {trials} trials have no score and are left out, since {reason}: {of_groups}")


def _group(cell: Cell, by: str | None) -> str:
    return ", ".join(value for axis, value in cell.items() if by in (None, axis))


def _of_runs(paths: Sequence[Path], by: str, split: str) -> tuple[list[_Trained], str]:
    runs = [read_run(path) for path in paths]
    names = _names([_chosen(run, by) for run in runs], runs, by)
    if by != "data":
        require_same_data(runs)
    groups = grouped(zip(runs, names, strict=True), lambda named: named[1]).values()
    if differing := differing_settings([[run for run, _ in group] for group in groups], by):
        print_warning(f"runs of one group differ in {listed(differing)}; means and intervals are over these, too")
    trained = [
        _Trained(str(run.folder), name, (), run.settings["seed"], run.scores.get(split))
        for run, name in zip(runs, names, strict=True)
    ]
    return trained, names[0]


def _chosen(run: Run, by: str) -> Any:
    value: Any = run.settings
    for name in by.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise UsageError(f"--by {by}: the settings of {run.folder} have no such field")
        value = value[name]
    return value


def _names(values: Sequence[Any], runs: Sequence[Run], by: str) -> list[str]:
    """Return a name for each value: the description of a model where it is enough, else the fields that differ."""
    different = {json.dumps(value, sort_keys=True) for value in values}
    described = [run.model if by == "model" else "" for run in runs]
    if all(described) and len(set(described)) == len(different):
        return described
    if not all(isinstance(value, Mapping) for value in values):
        return [value if isinstance(value, str) else json.dumps(value) for value in values]
    leaves = [dict(flattened(value)) for value in values]
    paths = dict.fromkeys(path for each in leaves for path in each)
    differing = [path for path in paths if len({each.get(path) for each in leaves}) > 1]
    return [", ".join(f"{path}={each.get(path, MISSING)}" for path in differing) for each in leaves]


def print_groups(score: Column, split: str, groups: Sequence[Group]) -> None:
    """Print one row for each group."""
    over, same = ("seeds", "seed") if all(each.cells == 1 for each in groups) else ("cells and seeds", "cell and seed")
    intervals = f"±95 %: half the interval over {over} (Student's t), of the mean and of the difference"
    differences = f"differences are between runs of the same {same}, or without such pairs between the means"
    caption = f"{score.heading}, on {split}; {intervals}; {differences}"
    headings = ["runs", "mean", "±95 %", f"minus {groups[0].name}", "±95 %", "pairs"]
    table = numbers_table(["group"], headings, caption)
    for each in groups:
        cells = [str(each.scores.count), score.written(each.scores.mean), score.written(each.scores.interval)]
        if (difference := each.difference) is not None:
            sign = "+" if difference.mean >= 0 else ""
            pairs = str(difference.pairs or "none")
            cells += [sign + score.written(difference.mean), score.written(difference.interval), pairs]
        table.add_row(literal(each.name), *cells)
    print_table(table)
    if any(each.scores.count < 2 for each in groups):
        print_warning("one run of a model has no interval; train it with more seeds")
