"""Plot curves with intervals in panels: the results of a sweep along one axis of its grid, or by length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from structattn.report.figures.figure import Plot, figure_style, legend_above, new_figure
from structattn.report.figures.palette import LineStyle, line_style

_SPREAD = 0.12  # fraction of the distance between two categories over which curves are spread
_MAX_COLUMNS = 3  # of panels
_MANY = 20  # points; from this number on they are drawn smaller

Place = str | float
Value = tuple[float, float | None]
"""A value, and half the width of its 95 % interval if known."""


@dataclass(frozen=True)
class Curve:
    """A curve.

    Args:
        label: its name; curves of the same name have the same style in all panels.
        points: x -> value; either all x are category names, or all are whole numbers.
        behind: the points of curves that are drawn thinly behind it, such as those of other trials.
    """

    label: str
    points: Mapping[Place, Value]
    behind: Sequence[Mapping[Place, Value]] = ()


@dataclass(frozen=True)
class Panel:
    """At least one curve on common axes, with a title, which may be empty."""

    title: str
    curves: Sequence[Curve]


def curves_plot(
    panels: Sequence[Panel], places: Sequence[str] | None, labels: tuple[str, str], name: str, caption: str
) -> Plot:
    """Plot curves in panels.

    Args:
        panels: at least one.
        places: the categories from left to right, which a curve need not all have; None if x is a whole number.
        labels: the labels of the two axes.
        name: the name of the files.
        caption: the caption.
    """
    names = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    styles = {label: line_style(number) for number, label in enumerate(names)}
    columns = min(_MAX_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    lines: dict[str, Line2D] = {}
    with figure_style(name):
        figure = new_figure(7.2 if columns == 1 else 3.8 * columns, 4.0 if rows == 1 else 2.8 * rows)
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            _label(axes, places, panel.title, labels[0], labels[1] if number % columns == 0 else "")
            for place, curve in enumerate(panel.curves):
                aside = _SPREAD * ((place + 0.5) / len(panel.curves) - 0.5)
                lines[curve.label] = _draw(axes, curve, places, aside, styles[curve.label])
            if places is None:
                axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in grid[len(panels) :]:
            axes.remove()
        if len(names) > 1:
            legend_above(figure, [lines[label] for label in names], names)
    return Plot(name, figure, caption)


def _label(axes: Axes, places: Sequence[str] | None, title: str, across: str, upwards: str) -> None:
    if places is not None:
        axes.set_xticks(range(len(places)), list(places))
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(upwards)


def _draw(axes: Axes, curve: Curve, places: Sequence[str] | None, shift: float, style: LineStyle) -> Line2D:
    """Draw a curve and return its line. Categories are shifted by ``shift``, so that intervals do not overlap."""

    def abscissa(place: Place) -> float:
        return float(place) if places is None else places.index(str(place)) + shift

    for points in curve.behind:
        thin = sorted((abscissa(place), value) for place, (value, _) in points.items())
        axes.plot(*zip(*thin, strict=True), color=style.color, linestyle=style.dash, linewidth=0.6, alpha=0.5)
    shown = sorted(curve.points.items(), key=lambda point: abscissa(point[0]))
    bars = axes.errorbar(
        [abscissa(place) for place, _ in shown],
        [value for _, (value, _) in shown],
        [interval or 0.0 for _, (_, interval) in shown],
        color=style.color,
        marker=style.marker,
        linestyle=style.dash,
        elinewidth=1.0,
        markersize=4 if len(shown) < _MANY else 2.5,
    )
    line: Line2D = bars.lines[0]
    return line
