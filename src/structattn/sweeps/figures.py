"""The pictures that a recipe asks for of its sweep's results."""

from collections.abc import Sequence

from structattn.reporting.curves import Curve, curves_plot
from structattn.reporting.figures import Plot, file_name
from structattn.settings.published import Figure
from structattn.settings.sweep import SweepSettings
from structattn.sweeps.comparison import number_of, spread_of_score
from structattn.sweeps.table import Row


def figures_of(sweep: SweepSettings, rows: Sequence[Row], name: str) -> list[Plot]:
    """The pictures of which there is anything to see; their files are named for ``name``, the axis and the score."""
    found = [(figure, _curves(figure, rows)) for figure in sweep.figures]
    return [
        curves_plot(
            curves,
            list(sweep.grid[figure.along]),
            (figure.along, figure.score.replace(".", ", ")),
            file_name(name, figure.along, figure.score),
            figure.says,
        )
        for figure, curves in found
        if curves
    ]


def _curves(figure: Figure, rows: Sequence[Row]) -> list[Curve]:
    points: dict[str, dict[str, tuple[float, float | None]]] = {}
    for row in rows:
        number = number_of(row, figure)
        if number is not None:
            label = ", ".join(value for axis, value in row.cell.items() if axis != figure.along) or figure.score
            points.setdefault(label, {})[row.cell[figure.along]] = number, _interval(figure, row)
    return [Curve(label, its) for label, its in points.items()]


def _interval(figure: Figure, row: Row) -> float | None:
    """Over the trials; of a single one that of its own score, where the score has one, as those of translations do."""
    spread = spread_of_score(row, figure.score)
    if spread is None or spread.interval is not None or figure.score == "validation":
        return None if spread is None else spread.interval
    split, score = figure.score.split(".")
    return row.splits.get(split, {}).get(f"{score} ±")
