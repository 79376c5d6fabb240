"""Distribution the figures that a sweep's settings ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from structattn.analysis.run_analysis import analyze_run, default_examples
from structattn.inference.runs import open_run
from structattn.reporting.figures.curves import Curve, Panel, Place, Value, curves_plot
from structattn.reporting.figures.figure import Plot, file_name
from structattn.reporting.figures.receptive_fields import dependency_plot
from structattn.reporting.runs import read_run
from structattn.settings.published import LENGTH, Curves, Dependencies
from structattn.settings.sweep import SweepSettings, matches
from structattn.support.json_files import read_json
from structattn.sweeps.comparison import row_score, score_statistics
from structattn.sweeps.table import TableRow


def sweep_figures(sweep: SweepSettings, rows: Sequence[TableRow], runs: Path, name: str) -> list[Plot]:
    """Distribution the figures of a sweep; figures without data are left out.

    Args:
        sweep: the settings with the list of figures.
        rows: the results.
        runs: the folder of the run folders, which hold scores by length and records.
        name: the name of the recipe, a prefix of the file names.
    """
    plots = [
        _dependencies(figure, rows, runs, name)
        if isinstance(figure, Dependencies)
        else _curves(figure, sweep, rows, runs, name)
        for figure in sweep.figures
    ]
    return [plot for plot in plots if plot is not None]


def _dependencies(figure: Dependencies, rows: Sequence[TableRow], runs: Path, name: str) -> Plot | None:
    """Plot the dependency matrices of the selected trials; a run without records is explained first."""
    found = []
    for row in rows:
        if matches(row.cell, figure.cell):
            folder = runs / row.selected
            if not any((folder / "records").glob(f"{figure.split}-*.json")):
                run = open_run(folder)
                analyze_run(run, figure.split, default_examples(run, figure.split, 1))
            found.append(read_run(folder, ", ".join(row.cell.values())))
    plot = dependency_plot(found, file_name(name, "dependencies"))
    return plot and replace(plot, caption=figure.caption)


def _curves(figure: Curves, sweep: SweepSettings, rows: Sequence[TableRow], runs: Path, name: str) -> Plot | None:
    panels = _panels(figure, rows, runs)
    if not panels:
        return None
    places = None if figure.x_axis == LENGTH else list(sweep.grid[figure.x_axis])
    labels = figure.x_axis, figure.score.replace(".", ", ").replace("_", " ")
    return curves_plot(panels, places, labels, file_name(name, figure.x_axis, figure.score), figure.caption)


def _panels(figure: Curves, rows: Sequence[TableRow], runs: Path) -> list[Panel]:
    """One panel for each value of the panel axis, one curve for each combination of the remaining axes."""
    points: dict[str, dict[str, dict[Place, Value]]] = {}
    for row in rows:
        points_of_row = _by_length(figure, runs / row.selected) if figure.x_axis == LENGTH else _by_axis(figure, row)
        if points_of_row:
            rest = [value for axis, value in row.cell.items() if axis not in (figure.x_axis, figure.panels)]
            panel = points.setdefault(row.cell.get(figure.panels or "", ""), {})
            panel.setdefault(", ".join(rest) or figure.score, {}).update(points_of_row)
    return [Panel(title, [Curve(*curve) for curve in curves.items()]) for title, curves in points.items()]


def _by_axis(figure: Curves, row: TableRow) -> dict[Place, Value]:
    score = row_score(row, figure)
    return {} if score is None else {row.cell[figure.x_axis]: (score, _interval(figure, row))}


def _by_length(figure: Curves, run: Path) -> dict[Place, Value]:
    """The score at each string length; empty if the run has no scores by length."""
    split, score = figure.score.split(".")
    path = run / "scores" / f"{split}.json"
    found: Sequence[Mapping[str, float | None]] = read_json(path, "scores")["by_length"] if path.exists() else []
    numbers = {row["length"]: row.get(score) for row in found}
    return {int(length): (value, None) for length, value in numbers.items() if length and value is not None}


def _interval(figure: Curves, row: TableRow) -> float | None:
    """The interval of the mean over trials; for a single trial that of its own score, as BLEU has one."""
    spread = score_statistics(row, figure.score)
    if spread is not None and spread.interval is not None and figure.statistic == "mean":
        return spread.interval
    if spread is None or figure.score == "validation" or (spread.count > 1 and figure.statistic != "selected"):
        return None
    split, score = figure.score.split(".")
    return row.splits.get(split, {}).get(f"{score} ±")
