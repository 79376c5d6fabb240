"""Curves over named places, with intervals: what sweeps come to along one axis of their grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from structattn.reporting.figures import Plot, house_style, legend_above, new_figure
from structattn.reporting.palette import look

_SPREAD = 0.12  # of the room between two places, over which curves are spread


@dataclass(frozen=True)
class Curve:
    """A curve.

    Args:
        label: its name.
        points: place -> its value, and half of the value's 95 % interval where that is known.
    """

    label: str
    points: Mapping[str, tuple[float, float | None]]


def curves_plot(
    curves: Sequence[Curve], places: Sequence[str], labels: tuple[str, str], name: str, caption: str
) -> Plot:
    """Curves in one picture.

    Args:
        curves: at least one.
        places: from left to right; a curve need not have all of them.
        labels: of the two axes.
        name: of the figure's files.
        caption: what it shows.
    """
    with house_style(name):
        figure = new_figure(7.2, 4.0)
        axes = figure.add_subplot()
        bars = []
        for number, curve in enumerate(curves):
            shown, its = [place for place in places if place in curve.points], look(number)
            aside = _SPREAD * ((number + 0.5) / len(curves) - 0.5)
            bars.append(
                axes.errorbar(
                    [places.index(place) + aside for place in shown],
                    [curve.points[place][0] for place in shown],
                    [curve.points[place][1] or 0.0 for place in shown],
                    color=its.color,
                    marker=its.marker,
                    linestyle=its.dash,
                    elinewidth=1.0,
                )
            )
        axes.set_xticks(range(len(places)), list(places))
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        legend_above(figure, [bar.lines[0] for bar in bars], [curve.label for curve in curves])
    return Plot(name, figure, caption)
