"""Heat maps of records: stack actions at every position, and attention weights. Vertical axes run downwards."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from structattn.loading.records import ACTION_NAMES, Record
from structattn.report.figures.figure import Plot, figure_style, new_figure
from structattn.report.figures.palette import INK, KEEP, MUTED, POP, PUSH, SOURCE, alpha_colormap
from structattn.report.labels import visible

_ACTION_COLORS = (PUSH, KEEP, POP)
_MARGIN = 1.9  # inches around the cells, for labels and the colour bar


def tick_labels(axis: Any, tokens: Sequence[str], points: float, upright: bool) -> None:
    """Label every cell with its token, or every k-th if cells are smaller than legible type.

    Args:
        axis: the axis to label.
        tokens: one token per cell.
        points: the size of a cell along the axis, in points.
        upright: whether the axis is horizontal, where wide labels are rotated.
    """
    labels = [visible(token) for token in tokens]
    size = float(np.clip(0.85 * points, 5.0, 8.5))
    every = max(1, int(np.ceil(size / (1.15 * points))))
    wide = upright and max(map(len, labels)) * 0.62 * size > every * points
    axis.set_ticks(range(0, len(labels), every), labels[::every], fontsize=size, rotation=90 if wide else 0)
    axis.set_tick_params(length=0, pad=2)


def cell_size(count: int, extent: float, largest: float) -> float:
    """Return the size of a cell in inches.

    Args:
        count: the number of cells along the axis.
        extent: the length in inches that the axis should have.
        largest: the largest size of a cell. Up to 80 cells have room for legible type; more are labelled in part.
    """
    smallest = 0.125 * min(1.0, 80 / max(1, count))
    return float(np.clip(extent / max(1, count), smallest, max(smallest, largest)))


def _cells(axes: Axes, weights: Any, color: str) -> AxesImage:
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(True)
    return axes.imshow(
        weights, cmap=alpha_colormap(color), vmin=0.0, vmax=1.0, aspect="auto", interpolation="none", origin="upper"
    )


def _draw_actions(axes: Axes, record: Record) -> None:
    """Draw one row per action, the first on top, each in its own colour; dots mark the most probable run."""
    actions, names = record.actions, list(ACTION_NAMES[record.mechanism])
    assert actions is not None
    for row, color in enumerate(_ACTION_COLORS[: len(names)]):
        shown = np.full((len(names), len(actions)), np.nan)
        shown[row] = actions[:, row]
        _cells(axes, shown, color)
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.tick_params(axis="both", length=0)
    axes.hlines(np.arange(len(names) - 1) + 0.5, -0.5, len(actions) - 0.5, color=axes.spines["left"].get_edgecolor())
    best = [] if record.best_run is None else [(t, row[0]) for t, row in enumerate(record.best_run) if row[0] >= 0]
    if best:
        axes.plot([t for t, _ in best], [choice for _, choice in best], ".", color=INK, markersize=2.5)


def _add_color_bar(figure: Figure, image: AxesImage, axes: Axes, label: str) -> None:
    bar = figure.colorbar(
        image, ax=axes, fraction=0.03, pad=0.012, aspect=14, shrink=0.55, anchor=(0.0, 1.0), ticks=[0, 0.5, 1]
    )
    bar.set_label(label, fontsize=8.5)
    bar.ax.tick_params(labelsize=8, length=0)
    bar.outline.set_linewidth(0.6)


def _draw_sources(figure: Figure, axes: Axes, record: Record, cell: tuple[float, float]) -> None:
    image = _cells(axes, record.weights.T, SOURCE)
    tick_labels(axes.xaxis, record.tokens, 72 * cell[0], upright=True)
    tick_labels(axes.yaxis, record.sources, 72 * cell[1], upright=False)
    axes.set_xlabel("position")
    axes.set_ylabel("source position")
    _add_color_bar(figure, image, axes, "weight")


def stack_plot(record: Record, name: str, caption: str) -> Plot:
    """Plot the actions over time above the attention weights; both share the time axis."""
    time, sources = len(record.tokens), len(record.sources)
    cell = cell_size(time, 9.6, 0.3), cell_size(sources, 4.0, 0.2)
    width, rows = cell[0] * time + _MARGIN, (0.85, cell[1] * sources)
    with figure_style(name):
        figure = new_figure(width, sum(rows) + 0.7)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=rows)
        _draw_actions(above, record)
        _draw_sources(figure, below, record, cell)
        above.tick_params(axis="x", labelbottom=False)
    return Plot(name, figure, caption)


def attention_plot(records: Sequence[Record], name: str, caption: str, *, labelled: bool = False) -> Plot:
    """Plot small maps of attention weights: a row for every layer, a column for every head.

    Args:
        records: the records of one example.
        name: the name of the files.
        caption: the caption.
        labelled: whether to label the axes with tokens, for maps between two different texts.
    """
    layers = sorted({record.layer for record in records})
    heads = sorted({(record.head or 0) for record in records})
    lowest = {(record.head or 0): layers.index(record.layer) for record in _by_layer(records)}
    widest, room = (3.2, 0.9) if labelled else (2.2, 0.0)  # inches: width of a map, and space for labels
    with figure_style(name):
        side = float(np.clip((10.6 - room) / len(heads), 1.2, widest))  # a row fits the page
        figure = new_figure(side * len(heads) + room, (side + 0.12) * len(layers) + room)
        grid = figure.subplots(len(layers), len(heads), squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for record in records:
            row, column = layers.index(record.layer), heads.index(record.head or 0)
            _draw_small(grid[row, column], record, column == 0)
            if labelled and row == lowest[record.head or 0]:
                tick_labels(grid[row, column].xaxis, record.tokens, 66 * side / len(record.tokens), upright=True)
            if labelled and column == 0:
                tick_labels(grid[row, 0].yaxis, record.sources, 66 * side / len(record.sources), upright=False)
        figure.supxlabel("query position", fontsize=8.5, color=MUTED)
        figure.supylabel("key position", fontsize=8.5, color=MUTED)
    return Plot(name, figure, caption)


def _by_layer(records: Sequence[Record]) -> list[Record]:
    """Sort records by layer."""
    return sorted(records, key=lambda record: record.layer)


def _draw_small(axes: Axes, record: Record, first: bool) -> None:
    axes.set_axis_on()
    _cells(axes, record.weights.T, PUSH)
    axes.set_box_aspect(1)
    axes.set_xticks([])
    axes.set_yticks([])
    layer = f"layer {record.layer + 1}, " if first else ""
    axes.set_title(f"{layer}head {(record.head or 0) + 1}", fontsize=8, pad=3)
