"""The pictures that a recipe asks for of its sweep's results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from structattn.reporting.curves import Curve, Panel, Place, Value, curves_plot
from structattn.reporting.figures import Plot, file_name
from structattn.settings.published import LENGTH, Figure
from structattn.settings.sweep import SweepSettings
from structattn.sweeps.comparison import number_of, spread_of_score
from structattn.sweeps.table import Row


def figures_of(sweep: SweepSettings, rows: Sequence[Row], runs: Path, name: str) -> list[Plot]:
    """The pictures of which there is anything to see; their files are named for ``name``, the axis and the score.

    Args:
        sweep: which asks for them.
        rows: the results.
        runs: where the run folders are; scores by length stand there.
        name: of the recipe.
    """
    found = [(figure, _panels(figure, rows, runs)) for figure in sweep.figures]
    return [
        curves_plot(
            panels,
            None if figure.along == LENGTH else list(sweep.grid[figure.along]),
            (figure.along, figure.score.replace(".", ", ").replace("_", " ")),
            file_name(name, figure.along, figure.score),
            figure.says,
        )
        for figure, panels in found
        if panels
    ]


def _panels(figure: Figure, rows: Sequence[Row], runs: Path) -> list[Panel]:
    """A panel for each value of the axis of panels, a curve for each combination of what is left."""
    points: dict[str, dict[str, dict[Place, Value]]] = {}
    for row in rows:
        its = _by_length(figure, runs / row.selected) if figure.along == LENGTH else _by_axis(figure, row)
        if its:
            rest = [value for axis, value in row.cell.items() if axis not in (figure.along, figure.panels)]
            panel = points.setdefault(row.cell.get(figure.panels or "", ""), {})
            panel.setdefault(", ".join(rest) or figure.score, {}).update(its)
    return [Panel(title, [Curve(*curve) for curve in curves.items()]) for title, curves in points.items()]


def _by_axis(figure: Figure, row: Row) -> dict[Place, Value]:
    number = number_of(row, figure)
    return {} if number is None else {row.cell[figure.along]: (number, _interval(figure, row))}


def _by_length(figure: Figure, run: Path) -> dict[Place, Value]:
    """The score at each length of the strings; none where the run was not scored, or not by length."""
    split, score = figure.score.split(".")
    path = run / "scores" / f"{split}.json"
    found: Sequence[Mapping[str, float | None]] = json.loads(path.read_bytes())["by_length"] if path.exists() else []
    numbers = {row["length"]: row.get(score) for row in found}
    return {int(length): (value, None) for length, value in numbers.items() if length and value is not None}


def _interval(figure: Figure, row: Row) -> float | None:
    """Over the trials; of a single one that of its own score, where the score has one, as those of translations do."""
    spread = spread_of_score(row, figure.score)
    if spread is None or spread.interval is not None or figure.score == "validation":
        return None if spread is None else spread.interval
    split, score = figure.score.split(".")
    return row.splits.get(split, {}).get(f"{score} ±")
