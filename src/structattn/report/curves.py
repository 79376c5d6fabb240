"""Curves with intervals: the results of a sweep along an axis, learning curves, and scores by length."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from structattn.report.figure import Plot, figure_style, legend_above, new_figure
from structattn.report.runs import Run, units_of
from structattn.report.style import GRID, INK, LINE, MUTED, LineStyle, line_style, side_offset
from structattn.support.environment import printable

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
        labels: of the two axes.
        name: of the files.
        caption: of the figure.
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
            axes.set(title=printable(panel.title), xlabel=labels[0], ylabel=labels[1] if number % columns == 0 else "")
            if places is not None:
                axes.set_xticks(range(len(places)), list(map(printable, places)))
            for place, curve in enumerate(panel.curves):
                aside = side_offset(place, len(panel.curves), _SPREAD)
                lines[curve.label] = _draw(axes, curve, places, aside, styles[curve.label])
            if places is None:
                axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in grid[len(panels) :]:
            axes.remove()
        if len(names) > 1:
            legend_above(figure, [lines[label] for label in names], list(map(printable, names)))
    return Plot(name, figure, caption)


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


MOST_UPDATES = 300
Series = tuple[NDArray[np.float64], NDArray[np.float64]]


def training_series(run: Run, most: int = MOST_UPDATES) -> Series:
    """Return updates and training loss, averaged over neighbours to ``most`` points.

    Losses are in nats per token, or per string of recognizers.
    """
    events = [event for event in run.of("train") if event.get("tokens")]
    updates = np.array([event["update"] for event in events], dtype=np.float64)
    tokens = np.array([event["tokens"] for event in events], dtype=np.float64)
    nats = np.array([event["loss"] for event in events], dtype=np.float64) * tokens
    if len(updates) <= most:
        return updates, nats / tokens
    starts = np.linspace(0, len(updates), most, endpoint=False).astype(np.int64)
    ends = np.append(starts[1:], len(updates)) - 1
    return updates[ends], np.add.reduceat(nats, starts) / np.add.reduceat(tokens, starts)


def validation_series(run: Run) -> Series:
    """Return updates and validation cross-entropy, in nats per token, or per string of recognizers."""
    events = run.of("validation")
    pairs = np.array([(event["update"], event["cross_entropy"]) for event in events], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _bounds(runs: Sequence[Run]) -> list[float]:
    first = [event for run in runs for event in run.of("validation")[:1]]
    return sorted({event["lower_bound"] for event in first if event.get("lower_bound") is not None})


def _upper_limit(curves: Sequence[Series], bottom: float) -> float | None:
    """An upper limit that cuts off the first few values, which would flatten the rest of the curve."""
    shown = [values[int(0.03 * len(values)) :] for _, values in curves if len(values)]
    top = max((float(np.max(values)) for values in shown), default=bottom)
    return top + 0.05 * (top - bottom) if top > bottom else None


def learning_curve_plots(runs: Sequence[tuple[Run, LineStyle]], name: str) -> list[Plot]:
    """Plot training loss and validation cross-entropy of the runs with logged events; ``name`` begins their files."""
    unit = units_of([run for run, _ in runs])
    panels = (
        ("train", training_series, f"Training loss (with dropout), in nats per {unit}."),
        ("validation", validation_series, f"Cross-entropy on validation data, in nats per {unit}."),
    )
    return [
        _plot([(run, style) for run, style in runs if run.of(event)], series, f"{name}-{event}", caption)
        for event, series, caption in panels
        if any(run.of(event) for run, _ in runs)
    ]


def _plot(runs: Sequence[tuple[Run, LineStyle]], series: Callable[[Run], Series], name: str, caption: str) -> Plot:
    """Plot one curve for each run, and a line for the bound of every validation set."""
    curves = [series(run) for run, _ in runs]
    with figure_style(name):
        figure = new_figure(5.7, 3.7)
        axes = figure.subplots()
        handles = [Line2D([], [], color=style.color, marker=style.marker, linestyle=style.dash) for _, style in runs]
        labels = [run.name for run, _ in runs]
        if series is validation_series and (bounds := _bounds([run for run, _ in runs])):
            lines = [axes.axhline(bound, color=INK, linewidth=1.1, linestyle=(0, (2, 2))) for bound in bounds]
            handles, labels = [*handles, lines[0]], [*labels, "lower bound"]
        for (_, style), (updates, values) in zip(runs, curves, strict=True):
            few = len(values) <= 40
            marker, width = (style.marker, 1.5) if few else ("", 1.0)
            axes.plot(updates, values, color=style.color, marker=marker, linestyle=style.dash, linewidth=width)
        axes.set(xlabel="updates", ylabel=f"nats per {units_of([run for run, _ in runs])}")
        axes.margins(x=0.02)
        axes.locator_params(axis="x", integer=True)
        bottom = axes.get_ylim()[0]
        axes.set_ylim(bottom, _upper_limit(curves, bottom))
        legend_above(figure, handles, labels)
    return Plot(name, figure, caption)


MOST_LENGTHS = 40
_EXPLAINED = (
    " The bound is conditioned on the length, which the model has to predict: a perfect model of training strings with "
    "N equally probable lengths is log N / (length + 1) above it."
)


def pool_lengths(rows: Sequence[Mapping[str, Any]], most: int = MOST_LENGTHS) -> list[tuple[float, float]]:
    """Pool neighbouring lengths into at most ``most`` points (mean length, cross-entropy).

    Each point has about the same number of tokens; its cross-entropy is the mean per token.
    """
    symbols = [row["num_sequences"] * (row["length"] + 1) for row in rows]
    share = max(1.0, sum(symbols) / most) if len(rows) > most else 0.0
    points = []
    size = nats = sequences = total = 0.0
    for row, weight in zip(rows, symbols, strict=True):
        size, nats = size + weight, nats + weight * row["cross_entropy"]
        sequences, total = sequences + row["num_sequences"], total + row["num_sequences"] * row["length"]
        if size >= share:
            points.append((total / sequences, nats / size))
            size = nats = sequences = total = 0.0
    return points + ([(total / sequences, nats / size)] if size else [])


def _mark_training_lengths(axes: Axes, data: Mapping[str, Any]) -> None:
    if not data.get("train_lengths"):
        return
    low, high = data["train_lengths"]
    axes.axvspan(low, high, color=GRID, alpha=0.55, linewidth=0, zorder=0)
    axes.axvline(high, color=LINE, linewidth=1.0, zorder=0.5)
    axes.annotate(
        "training lengths",
        ((low + high) / 2, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(0, -11),
        textcoords="offset points",
        ha="center",
        color=MUTED,
        fontsize=8,
        annotation_clip=False,
    )


def _perfect_model(axes: Axes, data: Mapping[str, Any]) -> list[Line2D]:
    """Draw log N / (n + 1), the loss of a perfect model of the training strings for predicting the length."""
    number = data.get("train_number_of_lengths")
    if not number or not data.get("train_lengths"):
        return []
    low, high = data["train_lengths"]
    lengths = range(low, high + 1)
    return axes.plot(
        lengths, [math.log(number) / (n + 1) for n in lengths], color=INK, linewidth=1.1, linestyle=(0, (2, 2))
    )


def length_curve_plot(runs: Sequence[tuple[Run, LineStyle]], split: str, name: str) -> Plot | None:
    """Plot the curve by length of every run that has one on ``split``; None if there is none."""
    drawn = [(run, style) for run, style in runs if len(run.scores.get(split, {}).get("by_length") or ()) > 1]
    if not drawn:
        return None
    rows = [run.scores[split]["by_length"] for run, _ in drawn]
    bound = all(row.get("cross_entropy_difference") is not None for each in rows for row in each)
    what = "cross-entropy above the lower bound" if bound else "cross-entropy"
    with figure_style(name):
        figure = new_figure(11.4, 4.0)
        axes = figure.add_subplot()
        _mark_training_lengths(axes, drawn[0][0].data)
        lines: list[Line2D] = []
        for (_, style), each in zip(drawn, rows, strict=True):
            shown = [row for row in each if row["num_sequences"]]
            points = (
                [(row["length"], row["cross_entropy_difference"]) for row in shown] if bound else pool_lengths(shown)
            )
            x, y = zip(*points, strict=True)
            lines += axes.plot(x, y, color=style.color, marker=style.marker, linestyle=style.dash, clip_on=False)
        perfect = _perfect_model(axes, drawn[0][0].data) if bound else []
        labels = [run.name for run, _ in drawn] + ["perfect model of the training strings"] * len(perfect)
        legend_above(figure, lines + perfect, labels)
        axes.set_xlabel("string length (symbols)" if bound else "sequence length (tokens)")
        axes.set_ylabel("nats per token" + (" above the bound" if bound else ""))
        axes.margins(x=0.01)
        if bound:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    return Plot(name, figure, f"{split.capitalize()}: {what} by length, in nats per token.{_EXPLAINED * bound}")
