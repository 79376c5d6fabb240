"""Plot receptive fields: the inputs that each prediction depends on (Discrete Transformer, figure 2)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from structattn.explorer.heatmaps import tick_labels
from structattn.explorer.recorded_runs import RecordedRun
from structattn.loading.records import Record
from structattn.report.figures.figure import Plot, figure_style, new_figure
from structattn.report.figures.palette import SOURCE, alpha_colormap

FIELD = "receptive_field"
_PAGE = 11.4  # inches
_SMALLEST, _LARGEST = 2.9, 8.0  # inches of a matrix


def receptive_field_plot(
    matrices: Sequence[tuple[str, Float[np.ndarray, "prediction input"], Sequence[str]]],
    tokens: Sequence[str],
    name: str,
    caption: str,
) -> Plot:
    """Plot matrices of one example side by side, with predictions as rows and inputs as columns.

    Args:
        matrices: title, weights and inputs of each.
        tokens: after which the predictions are made.
        name: of the figure.
        caption: of the figure.
    """
    with figure_style(name):
        longest = max(len(tokens), *(len(sources) for *_, sources in matrices))
        largest = max(_SMALLEST, min(_LARGEST, _PAGE / len(matrices)))
        side = float(np.clip(0.125 * longest + 0.5, _SMALLEST, largest))
        figure = new_figure(side * len(matrices) + 0.4, side + 0.5)
        grid = figure.subplots(1, len(matrices), squeeze=False)
        for axes, (title, weights, sources) in zip(grid.flat, matrices, strict=True):
            _draw(axes, weights, tokens, sources, side)
            axes.set_title(title, fontsize=8.5, pad=4)
            axes.set_xlabel("input")
        grid[0, 0].set_ylabel("prediction after")
    return Plot(name, figure, caption)


def _draw(axes: Axes, weights: np.ndarray, tokens: Sequence[str], sources: Sequence[str], side: float) -> None:
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(True)
    axes.imshow(weights, cmap=alpha_colormap(SOURCE), vmin=0.0, vmax=1.0, interpolation="none")
    points = 72 * (side - 0.5) / max(len(tokens), len(sources))
    tick_labels(axes.xaxis, sources, points, upright=True)
    tick_labels(axes.yaxis, tokens, points, upright=False)


def dependency_plot(runs: Sequence[RecordedRun], name: str) -> Plot | None:
    """Plot the true dependencies of an example next to the receptive fields of all runs with a record of it.

    None if no run has a record of an example with known dependencies.
    """
    known = [(run, record) for run in runs for record in _known(run)]
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


def _known(run: RecordedRun) -> list[Record]:
    records = (record for example in run.examples for record in example.records)
    return [record for record in records if record.mechanism == FIELD and record.truth is not None]
