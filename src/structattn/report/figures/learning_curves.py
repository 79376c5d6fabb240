"""Plot training loss and validation cross-entropy over updates, with the lower bound."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from structattn.report.figures.figure import Plot, figure_style, legend_above, new_figure
from structattn.report.figures.palette import INK, LineStyle
from structattn.report.runs import Run

MOST_POINTS = 300
Series = tuple[NDArray[np.float64], NDArray[np.float64]]


def training_series(run: Run, most: int = MOST_POINTS) -> Series:
    """Return updates and training loss in nats per token, averaged over neighbouring updates to ``most`` points."""
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
    """Return updates and validation cross-entropy in nats per token."""
    events = run.of("validation")
    pairs = np.array([(event["update"], event["cross_entropy"]) for event in events], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _bounds(run: Run) -> list[float]:
    return [event["lower_bound"] for event in run.of("validation")[:1] if event.get("lower_bound") is not None]


def _upper_limit(curves: Sequence[Series], bottom: float) -> float | None:
    """An upper limit that cuts off the first few values, which would flatten the rest of the curve."""
    shown = [values[int(0.03 * len(values)) :] for _, values in curves if len(values)]
    top = max((float(np.max(values)) for values in shown), default=bottom)
    return top + 0.05 * (top - bottom) if top > bottom else None


def _panel(axes: Axes, runs: Sequence[tuple[Run, LineStyle]], series: Callable[[Run], Series]) -> None:
    curves = [series(run) for run, _ in runs]
    for (_, style), (updates, values) in zip(runs, curves, strict=True):
        few = len(values) <= 40
        axes.plot(
            updates,
            values,
            color=style.color,
            marker=style.marker if few else "",
            linestyle=style.dash,
            linewidth=1.5 if few else 1.0,
        )
    axes.set_xlabel("updates")
    axes.set_ylabel("nats per token")
    axes.margins(x=0.02)
    bottom = axes.get_ylim()[0]
    axes.set_ylim(bottom, _upper_limit(curves, bottom))


def _draw_bounds(axes: Axes, runs: Sequence[tuple[Run, LineStyle]]) -> Line2D | None:
    """Draw a line for the bound of every validation set and return one of them for the legend."""
    lines = [
        axes.axhline(bound, color=INK, linewidth=1.1, linestyle=(0, (2, 2)))
        for bound in sorted({bound for run, _ in runs for bound in _bounds(run)})
    ]
    return lines[0] if lines else None


def learning_curve_plots(runs: Sequence[tuple[Run, LineStyle]], name: str) -> list[Plot]:
    """Plot the training loss, and the validation cross-entropy, of the runs that have logged events; of none: nothing.

    Args:
        runs: runs with their styles.
        name: the beginning of the names of the figures' files.
    """
    panels = (
        ("train", training_series, "Training loss (with dropout), in nats per token."),
        ("validation", validation_series, "Cross-entropy on validation data, in nats per token."),
    )
    return [
        _plot([(run, style) for run, style in runs if run.of(event)], series, f"{name}-{event}", caption)
        for event, series, caption in panels
        if any(run.of(event) for run, _ in runs)
    ]


def _plot(runs: Sequence[tuple[Run, LineStyle]], series: Callable[[Run], Series], name: str, caption: str) -> Plot:
    with figure_style(name):
        figure = new_figure(5.7, 3.7)
        axes = figure.subplots()
        bound = _draw_bounds(axes, runs) if series is validation_series else None
        _panel(axes, runs, series)
        handles = [Line2D([], [], color=style.color, marker=style.marker, linestyle=style.dash) for _, style in runs]
        labels = [run.name for run, _ in runs]
        if bound is not None:
            handles, labels = [*handles, bound], [*labels, "lower bound"]
        legend_above(figure, handles, labels)
    return Plot(name, figure, caption)
