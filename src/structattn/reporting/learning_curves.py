"""Training loss and validation cross-entropy over the updates, with the lower bound."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from structattn.reporting.figures import Plot, house_style, legend_above, new_figure
from structattn.reporting.palette import INK, Look
from structattn.reporting.runs import Run

MOST_POINTS = 300
Series = tuple[NDArray[np.float64], NDArray[np.float64]]


def training_series(run: Run, most: int = MOST_POINTS) -> Series:
    """(updates, training loss in nats per symbol), neighbouring updates averaged into at most ``most`` points."""
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
    """(updates, validation cross-entropy in nats per symbol)."""
    events = run.of("validation")
    pairs = np.array([(event["update"], event["cross_entropy"]) for event in events], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _bounds(run: Run) -> list[float]:
    return [event["lower_bound"] for event in run.of("validation")[:1] if event.get("lower_bound") is not None]


def _upper_limit(curves: Sequence[Series], bottom: float) -> float | None:
    """A top that shows the descent but not the first few values, which would flatten everything else."""
    shown = [values[int(0.03 * len(values)) :] for _, values in curves if len(values)]
    top = max((float(np.max(values)) for values in shown), default=bottom)
    return top + 0.05 * (top - bottom) if top > bottom else None


def _panel(axes: Axes, runs: Sequence[tuple[Run, Look]], series: Callable[[Run], Series], title: str) -> None:
    curves = [series(run) for run, _ in runs]
    for (_, look), (updates, values) in zip(runs, curves, strict=True):
        few = len(values) <= 40
        axes.plot(
            updates,
            values,
            color=look.color,
            marker=look.marker if few else "",
            linestyle=look.dash,
            linewidth=1.5 if few else 1.0,
        )
    axes.set_title(title)
    axes.set_xlabel("updates")
    axes.margins(x=0.02)
    bottom = axes.get_ylim()[0]
    axes.set_ylim(bottom, _upper_limit(curves, bottom))


def _draw_bounds(axes: Axes, runs: Sequence[tuple[Run, Look]]) -> Line2D | None:
    """A line for every validation set's bound; one of them for the legend."""
    lines = [
        axes.axhline(bound, color=INK, linewidth=1.1, linestyle=(0, (2, 2)))
        for bound in sorted({bound for run, _ in runs for bound in _bounds(run)})
    ]
    return lines[0] if lines else None


def learning_plot(runs: Sequence[tuple[Run, Look]], name: str) -> Plot | None:
    """The learning curves of the runs that have logged anything; None where none has."""
    drawn = [(run, look) for run, look in runs if run.of("validation") or run.of("train")]
    if not drawn:
        return None
    with house_style(name):
        figure = new_figure(11.4, 3.8)
        left, right = figure.subplots(1, 2)
        bound = _draw_bounds(right, drawn)
        _panel(left, drawn, training_series, "training, dropout on")
        _panel(right, drawn, validation_series, "validation")
        left.set_ylabel("nats per symbol")
        handles = [Line2D([], [], color=look.color, marker=look.marker, linestyle=look.dash) for _, look in drawn]
        labels = [run.name for run, _ in drawn]
        if bound is not None:
            handles, labels = [*handles, bound], [*labels, "lower bound of the validation strings"]
        legend_above(figure, handles, labels)
    return Plot(name, figure, "Cross-entropy while training, in nats per symbol.")
