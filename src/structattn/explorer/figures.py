"""Figures of records: heat maps of stack actions and attention weights, and receptive fields."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from structattn.explorer.recording import RECEPTIVE_FIELD, RecordedExample
from structattn.explorer.recording_files import RecordedRun
from structattn.loading.records import Record, action_names
from structattn.report.figure import Plot, alpha_colormap, figure_element, figure_style, file_name, new_figure
from structattn.report.page import Markup, joined, tag, visible
from structattn.report.style import INK, KEEP, MUTED, POP, PUSH, SOURCE, LineStyle
from structattn.report.tables import swatch
from structattn.settings.mechanisms import MECHANISMS
from structattn.support.shapes import Float

_ACTION_COLORS = {"push": PUSH, "pop": POP}  # of all others KEEP
_MARGIN = 1.9  # inches around the cells, for labels and the colour bar


def tick_labels(axis: Any, tokens: Sequence[str], points: float, upright: bool) -> None:
    """Label every cell with its token, or every k-th if cells, ``points`` wide, are smaller than legible type.

    Wide labels of a horizontal axis (``upright``) are rotated.
    """
    labels = [visible(token) for token in tokens]
    size = float(np.clip(0.85 * points, 5.0, 8.5))
    every = max(1, int(np.ceil(size / (1.15 * points))))
    wide = upright and max(map(len, labels)) * 0.62 * size > every * points
    axis.set_ticks(range(0, len(labels), every), labels[::every], fontsize=size, rotation=90 if wide else 0)
    axis.set_tick_params(length=0, pad=2)


def cell_size(count: int, extent: float, largest: float) -> float:
    """Return the size of a cell in inches for an axis of ``count`` cells that should be ``extent`` inches long.

    Up to 80 cells have room for legible type; more are labelled in part.
    """
    smallest = 0.125 * min(1.0, 80 / max(1, count))
    return float(np.clip(extent / max(1, count), smallest, max(smallest, largest)))


def _cells(axes: Axes, weights: Any, color: str, aspect: Literal["auto", "equal"] = "auto") -> AxesImage:
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(True)
    colors = alpha_colormap(color)
    return axes.imshow(weights, cmap=colors, vmin=0.0, vmax=1.0, aspect=aspect, interpolation="none", origin="upper")


def _draw_actions(axes: Axes, record: Record) -> None:
    """Draw one row per action, the first on top, each in its own colour; dots mark the most probable run.

    Of a nondeterministic stack: given the example up to each position, as its readings are; the run is of the whole.
    """
    actions = record.actions if record.prefix_actions is None else record.prefix_actions
    names = list(action_names(record.mechanism))
    assert actions is not None
    for row, action in enumerate(names):
        shown = np.full((len(names), len(actions)), np.nan)
        shown[row] = actions[:, row]
        _cells(axes, shown, _ACTION_COLORS.get(action, KEEP))
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.tick_params(axis="both", length=0)
    axes.hlines(np.arange(len(names) - 1) + 0.5, -0.5, len(actions) - 0.5, color=axes.spines["left"].get_edgecolor())
    best = [] if record.best_run is None else [(t, row[0]) for t, row in enumerate(record.best_run) if row[0] >= 0]
    if best:
        axes.plot([t for t, _ in best], [choice for _, choice in best], ".", color=INK, markersize=2.5)


def _draw_sources(figure: Figure, axes: Axes, record: Record, cell: tuple[float, float]) -> None:
    image = _cells(axes, record.weights.T, SOURCE)
    tick_labels(axes.xaxis, record.tokens, 72 * cell[0], upright=True)
    tick_labels(axes.yaxis, record.sources, 72 * cell[1], upright=False)
    axes.set_xlabel("position")
    axes.set_ylabel("source position")
    bar = figure.colorbar(
        image, ax=axes, fraction=0.03, pad=0.012, aspect=14, shrink=0.55, anchor=(0.0, 1.0), ticks=[0, 0.5, 1]
    )
    bar.set_label("weight", fontsize=8.5)
    bar.ax.tick_params(labelsize=8, length=0)
    bar.outline.set_linewidth(0.6)


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
    """Plot small maps of attention weights of one example: a row for every sublayer, a column for every head.

    Maps between two different texts are ``labelled``: their axes have tokens.
    """
    layers = sorted({_sublayer(record) for record in records})
    heads = sorted({(record.head or 0) for record in records})
    by_layer = sorted(records, key=_sublayer)
    lowest = {(record.head or 0): layers.index(_sublayer(record)) for record in by_layer}
    widest, room = (3.2, 0.9) if labelled else (2.2, 0.0)  # inches: width of a map, and space for labels
    with figure_style(name):
        side = float(np.clip((10.6 - room) / len(heads), 1.2, widest))  # a row fits the page
        figure = new_figure(side * len(heads) + room, (side + 0.12) * len(layers) + room)
        grid = figure.subplots(len(layers), len(heads), squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for record in records:
            row, column = layers.index(_sublayer(record)), heads.index(record.head or 0)
            _draw_small(grid[row, column], record, column == 0)
            if labelled and row == lowest[record.head or 0]:
                tick_labels(grid[row, column].xaxis, record.tokens, 66 * side / len(record.tokens), upright=True)
            if labelled and column == 0:
                tick_labels(grid[row, 0].yaxis, record.sources, 66 * side / len(record.sources), upright=False)
        figure.supxlabel("query position", fontsize=8.5, color=MUTED)
        figure.supylabel("key position", fontsize=8.5, color=MUTED)
    return Plot(name, figure, caption)


def _sublayer(record: Record) -> tuple[int, bool]:
    """Return the layer, and whether it is what is added to it."""
    return record.layer, record.sublayer == "stack"


def _draw_small(axes: Axes, record: Record, first: bool) -> None:
    axes.set_axis_on()
    _cells(axes, record.weights.T, PUSH)
    axes.set_box_aspect(1)
    axes.set_xticks([])
    axes.set_yticks([])
    added = f"{record.mechanism}, " if record.sublayer == "stack" else ""
    layer = f"layer {record.layer + 1}, {added}" if first else ""
    axes.set_title(f"{layer}head {(record.head or 0) + 1}", fontsize=8, pad=3)


_PAGE = 11.4  # inches
_SMALLEST, _LARGEST = 2.9, 8.0  # inches of a matrix


def receptive_field_plot(
    matrices: Sequence[tuple[str, Float[np.ndarray, "prediction input"], Sequence[str]]],
    tokens: Sequence[str],
    name: str,
    caption: str,
) -> Plot:
    """Plot matrices of one example side by side, with predictions as rows and inputs as columns.

    ``matrices`` has title, weights and inputs of each; the predictions are made after ``tokens``.
    """
    with figure_style(name):
        longest = max(len(tokens), *(len(sources) for *_, sources in matrices))
        largest = max(_SMALLEST, min(_LARGEST, _PAGE / len(matrices)))
        side = float(np.clip(0.125 * longest + 0.5, _SMALLEST, largest))
        figure = new_figure(side * len(matrices) + 0.4, side + 0.5)
        grid = figure.subplots(1, len(matrices), squeeze=False)
        for axes, (title, weights, sources) in zip(grid.flat, matrices, strict=True):
            _cells(axes, weights, SOURCE, aspect="equal")
            cell = 72 * (side - 0.5) / max(len(tokens), len(sources))  # in points
            tick_labels(axes.xaxis, sources, cell, upright=True)
            tick_labels(axes.yaxis, tokens, cell, upright=False)
            axes.set_title(title, fontsize=8.5, pad=4)
            axes.set_xlabel("input")
        grid[0, 0].set_ylabel("prediction after")
    return Plot(name, figure, caption)


def dependency_plot(runs: Sequence[RecordedRun], name: str) -> Plot | None:
    """Plot the true dependencies of an example next to the receptive fields of all runs with a record of it.

    None if no run has a record of an example with known dependencies.
    """
    known = [
        (run, record)
        for run in runs
        for example in run.examples
        for record in example.records
        if record.mechanism == RECEPTIVE_FIELD and record.truth is not None
    ]
    if not known:
        return None
    _, chosen = known[0]
    tokens, truth = chosen.tokens, chosen.truth
    assert truth is not None
    same = [(run.name, record.weights, tokens) for run, record in known if record.tokens == tokens]
    caption = (
        "The inputs (columns) that each prediction (rows) depends on: the true dependencies, and the receptive field "
        "of each run through all layers. It is exact for hard attention, and a relaxation between 0 and 1 for weights."
    )
    return receptive_field_plot([("true dependencies", truth, tokens), *same], tokens, name, caption)


_PLACES = {  # of the attention on a pair
    "encoder": " within the source",
    "decoder": " within the target (teacher forcing)",
    "cross": " from the target (teacher forcing) to the source",
}
_AXES = "Horizontal: query position; vertical: key position, downwards."


def _stack_figure(run: RecordedRun, record: Record, prefix: str, folder: Path) -> Markup:
    layer, side, entry = record.layer, record.side or "", MECHANISMS.get(record.mechanism)
    head = "" if record.head is None else f", head {record.head + 1}"
    place = f"{side} layer {layer + 1}{head}".lstrip()
    caption = f"{run.name}, {place}. {(entry and entry.caption) or record.mechanism}"
    name = file_name(prefix, side, f"layer-{layer + 1}" + ("-stack" if record.sublayer == "stack" else ""), head)
    return figure_element(stack_plot(record, name, caption), folder)


def _field_figure(run: RecordedRun, fields: Sequence[Record], prefix: str, folder: Path) -> Markup:
    """Return the receptive field of a sequence, or those of a pair for target and source."""
    titles = {"receptive-field": "target", "source-receptive-field": "source"} if fields[0].side else {}
    matrices = [(titles.get(record.sublayer, ""), record.weights, record.sources) for record in fields]
    caption = f"{run.name}: the inputs (columns) that each prediction (rows) depends on through all layers."
    if titles:
        caption = (
            f"{run.name}: the target and source inputs (columns) that each prediction of a token (rows) depends on "
            "through all layers, under teacher forcing."
        )
    plot = receptive_field_plot(matrices, fields[0].tokens, file_name(prefix, RECEPTIVE_FIELD), caption)
    return figure_element(plot, folder)


def _head_figures(run: RecordedRun, example: RecordedExample, prefix: str, folder: Path) -> list[Markup]:
    """Return the maps of attention weights; of a pair one for each place: encoder, decoder and cross-attention."""
    heads = [record for record in example.records if record.actions is None and record.mechanism != RECEPTIVE_FIELD]
    paired, parts = example.source is not None, []
    for place, meaning in _PLACES.items() if paired else (("softmax", ""),):
        shown = [each for each in heads if not paired or place == ("cross" if each.sublayer == "cross" else each.side)]
        if shown:
            names = " and ".join(sorted({record.mechanism for record in shown}))
            caption = f"{run.name}, {names} attention{meaning}. {_AXES}"
            figure = attention_plot(shown, file_name(prefix, place), caption, labelled=paired)
            heading = tag("summary", f"{place}: {names} layers" if paired else f"{names} layers")
            parts.append(tag("details", heading, figure_element(figure, folder), class_="softmax"))
    return parts


def _text(tokens: Sequence[str]) -> Markup:
    return tag("p", " ".join(visible(token, longest=40) for token in tokens), class_="tokens")


def _one_example(run: RecordedRun, example: RecordedExample, prefix: str, folder: Path) -> Markup:
    parts = [_text(tokens) for tokens in (example.source, example.tokens) if tokens is not None]
    parts += [_stack_figure(run, record, prefix, folder) for record in example.records if record.actions is not None]
    if fields := [record for record in example.records if record.mechanism == RECEPTIVE_FIELD]:
        parts.append(_field_figure(run, fields, prefix, folder))
    return joined(*parts, *_head_figures(run, example, prefix, folder))


def explanations(run: RecordedRun, style: LineStyle, prefix: str, folder: Path) -> Markup:
    """Return all heat maps of a run and write their PNG and PDF files; empty if the run has no records."""
    if not run.examples:
        return Markup("")
    parts = [
        _one_example(run, example, f"{prefix}-example-{index}", folder)
        for index, example in enumerate(run.examples, start=1)
    ]
    return tag("section", tag("h3", swatch(style), run.name), *parts)
