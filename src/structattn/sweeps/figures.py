"""The pictures that a recipe asks for of its sweep's results."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from structattn.analysis.analyze import analyze_run, first_examples
from structattn.inference.runs import open_run
from structattn.reporting.curves import Curve, Panel, Place, Value, curves_plot
from structattn.reporting.fields import dependency_plot
from structattn.reporting.figures import Plot, file_name
from structattn.reporting.runs import read_run
from structattn.settings.published import LENGTH, Curves, Dependencies
from structattn.settings.sweep import SweepSettings, fits
from structattn.sweeps.comparison import number_of, spread_of_score
from structattn.sweeps.table import Row


def figures_of(sweep: SweepSettings, rows: Sequence[Row], runs: Path, name: str) -> list[Plot]:
    """The pictures of which there is anything to see; their files are named for ``name`` and what they show.

    Args:
        sweep: which asks for them.
        rows: the results.
        runs: where the run folders are; scores by length stand there, and what examples depend on.
        name: of the recipe.
    """
    drawn = [
        _dependencies(figure, rows, runs, name)
        if isinstance(figure, Dependencies)
        else _curves(figure, sweep, rows, runs, name)
        for figure in sweep.figures
    ]
    return [plot for plot in drawn if plot is not None]


def _dependencies(figure: Dependencies, rows: Sequence[Row], runs: Path, name: str) -> Plot | None:
    """The matrices of the selected trials; an example is explained where none was before."""
    found = []
    for row in rows:
        if fits(row.cell, figure.cell):
            folder = runs / row.selected
            if not any((folder / "records").glob(f"{figure.split}-*.json")):
                run = open_run(folder)
                analyze_run(run, figure.split, first_examples(run, figure.split, 1))
            found.append(read_run(folder, ", ".join(row.cell.values())))
    plot = dependency_plot(found, file_name(name, "dependencies"))
    return plot and replace(plot, caption=figure.says)


def _curves(figure: Curves, sweep: SweepSettings, rows: Sequence[Row], runs: Path, name: str) -> Plot | None:
    panels = _panels(figure, rows, runs)
    if not panels:
        return None
    places = None if figure.along == LENGTH else list(sweep.grid[figure.along])
    labels = figure.along, figure.score.replace(".", ", ").replace("_", " ")
    return curves_plot(panels, places, labels, file_name(name, figure.along, figure.score), figure.says)


def _panels(figure: Curves, rows: Sequence[Row], runs: Path) -> list[Panel]:
    """A panel for each value of the axis of panels, a curve for each combination of what is left."""
    points: dict[str, dict[str, dict[Place, Value]]] = {}
    for row in rows:
        its = _by_length(figure, runs / row.selected) if figure.along == LENGTH else _by_axis(figure, row)
        if its:
            rest = [value for axis, value in row.cell.items() if axis not in (figure.along, figure.panels)]
            panel = points.setdefault(row.cell.get(figure.panels or "", ""), {})
            panel.setdefault(", ".join(rest) or figure.score, {}).update(its)
    return [Panel(title, [Curve(*curve) for curve in curves.items()]) for title, curves in points.items()]


def _by_axis(figure: Curves, row: Row) -> dict[Place, Value]:
    number = number_of(row, figure)
    return {} if number is None else {row.cell[figure.along]: (number, _interval(figure, row))}


def _by_length(figure: Curves, run: Path) -> dict[Place, Value]:
    """The score at each length of the strings; none where the run was not scored, or not by length."""
    split, score = figure.score.split(".")
    path = run / "scores" / f"{split}.json"
    found: Sequence[Mapping[str, float | None]] = json.loads(path.read_bytes())["by_length"] if path.exists() else []
    numbers = {row["length"]: row.get(score) for row in found}
    return {int(length): (value, None) for length, value in numbers.items() if length and value is not None}


def _interval(figure: Curves, row: Row) -> float | None:
    """Of a mean that over the trials; of a single trial that of its own score, as those of translations have one."""
    spread = spread_of_score(row, figure.score)
    if spread is not None and spread.interval is not None and figure.of == "mean":
        return spread.interval
    if spread is None or figure.score == "validation" or (spread.count > 1 and figure.of != "selected"):
        return None
    split, score = figure.score.split(".")
    return row.splits.get(split, {}).get(f"{score} ±")
