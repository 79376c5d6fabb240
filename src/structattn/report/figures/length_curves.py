"""Plot cross-entropy, or its difference from the lower bound, by sequence length."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from structattn.report.figures.figure import Plot, figure_style, legend_above, new_figure
from structattn.report.figures.palette import GRID, INK, LINE, MUTED, LineStyle
from structattn.report.runs import Run

MOST_POINTS = 40
_EXPLAINED = (
    " The bound is conditioned on the length, which the model has to predict: a perfect model of training strings with "
    "N equally probable lengths is log N / (length + 1) above it."
)


def pool_lengths(rows: Sequence[Mapping[str, Any]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
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


def _points(score: Mapping[str, Any], against_bound: bool) -> list[tuple[float, float]]:
    rows = [row for row in score["by_length"] if row["num_sequences"]]
    if against_bound:
        return [(row["length"], row["cross_entropy_difference"]) for row in rows]
    return pool_lengths(rows)


def _has_bounds(score: Mapping[str, Any]) -> bool:
    return all(row.get("cross_entropy_difference") is not None for row in score["by_length"])


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


def _draw(axes: Axes, runs: Sequence[tuple[Run, LineStyle]], split: str, bound: bool) -> tuple[list[Line2D], list[str]]:
    """Draw the curves and return their lines and labels."""
    lines: list[Line2D] = []
    labels: list[str] = []
    for run, style in runs:
        points = _points(run.scores[split], bound)
        (line,) = axes.plot(
            *zip(*points, strict=True), color=style.color, marker=style.marker, linestyle=style.dash, clip_on=False
        )
        lines.append(line)
        labels.append(run.name)
    if bound:
        perfect = _perfect_model(axes, runs[0][0].data)
        lines += perfect
        labels += ["perfect model of the training strings"] * len(perfect)
    return lines, labels


def length_curve_plot(runs: Sequence[tuple[Run, LineStyle]], split: str, name: str) -> Plot | None:
    """Plot the curve by length of every run that has one on ``split``; None if there is none."""
    drawn = [(run, style) for run, style in runs if len(run.scores.get(split, {}).get("by_length") or ()) > 1]
    if not drawn:
        return None
    bound = all(_has_bounds(run.scores[split]) for run, _ in drawn)
    what = "cross-entropy above the lower bound" if bound else "cross-entropy"
    with figure_style(name):
        figure = new_figure(11.4, 4.0)
        axes = figure.add_subplot()
        _mark_training_lengths(axes, drawn[0][0].data)
        legend_above(figure, *_draw(axes, drawn, split, bound))
        axes.set_xlabel("string length (symbols)" if bound else "sequence length (tokens)")
        axes.set_ylabel("nats per token" + (" above the bound" if bound else ""))
        axes.margins(x=0.01)
        if bound:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    return Plot(name, figure, f"{split.capitalize()}: {what} by length, in nats per token.{_EXPLAINED * bound}")
