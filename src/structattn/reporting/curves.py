"""Curves in panels, with intervals: what sweeps come to along one axis of their grid, or by length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from structattn.reporting.figures import Plot, house_style, legend_above, new_figure
from structattn.reporting.palette import Look, look

_SPREAD = 0.12  # of the room between two named places, over which curves are spread
_ABREAST = 3  # panels
_MANY = 20  # points, that are drawn smaller

Place = str | float
Value = tuple[float, float | None]
"""A value, and half of its 95 % interval where that is known."""


@dataclass(frozen=True)
class Curve:
    """A curve.

    Args:
        label: its name; curves of one name look alike in all panels.
        points: of one curve, all places are names, or all are numbers.
    """

    label: str
    points: Mapping[Place, Value]


@dataclass(frozen=True)
class Panel:
    """Curves that share axes, at least one, under a title, which may be empty."""

    title: str
    curves: Sequence[Curve]


def curves_plot(
    panels: Sequence[Panel], places: Sequence[str] | None, labels: tuple[str, str], name: str, caption: str
) -> Plot:
    """Curves in one picture.

    Args:
        panels: at least one.
        places: from left to right, where they are names; a curve need not have all of them. None: they are numbers.
        labels: of the two axes.
        name: of the figure's files.
        caption: what it shows.
    """
    names = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    looks = {label: look(number) for number, label in enumerate(names)}
    columns = min(_ABREAST, len(panels))
    rows = -(-len(panels) // columns)
    lines: dict[str, Line2D] = {}
    with house_style(name):
        figure = new_figure(7.2 if columns == 1 else 3.8 * columns, 4.0 if rows == 1 else 2.8 * rows)
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            _label(axes, places, panel.title, labels[0], labels[1] if number % columns == 0 else "")
            for place, curve in enumerate(panel.curves):
                aside = _SPREAD * ((place + 0.5) / len(panel.curves) - 0.5)
                lines[curve.label] = _draw(axes, curve, places, aside, looks[curve.label])
            if places is None:
                axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        for axes in grid[len(panels) :]:
            axes.remove()
        legend_above(figure, [lines[label] for label in names], names)
    return Plot(name, figure, caption)


def _label(axes: Axes, places: Sequence[str] | None, title: str, across: str, upwards: str) -> None:
    if places is not None:
        axes.set_xticks(range(len(places)), list(places))
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(upwards)


def _draw(axes: Axes, curve: Curve, places: Sequence[str] | None, aside: float, its: Look) -> Line2D:
    """Draw a curve; its line. Named places are shifted aside, so that intervals stand beside each other."""

    def abscissa(place: Place) -> float:
        return float(place) if places is None else places.index(str(place)) + aside

    shown = sorted(curve.points.items(), key=lambda point: abscissa(point[0]))
    bars = axes.errorbar(
        [abscissa(place) for place, _ in shown],
        [value for _, (value, _) in shown],
        [interval or 0.0 for _, (_, interval) in shown],
        color=its.color,
        marker=its.marker,
        linestyle=its.dash,
        elinewidth=1.0,
        markersize=4 if len(shown) < _MANY else 2.5,
    )
    line: Line2D = bars.lines[0]
    return line
