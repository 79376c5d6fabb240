"""Figures of the pages of results: published numbers and ours as pairs of points, and scores by length."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import mean
from textwrap import fill

import matplotlib as mpl
from findings import Number, Row, Table, score_name
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from stored import stored

from structattn.metrics.statistics import critical_value
from structattn.report.figure import figure_style, new_figure
from structattn.report.style import INK, MUTED, line_style

PUBLISHED, OURS = MUTED, line_style(0).color
MODELS = {"Tf": 0, "Tf+Sup": 1, "Tf+Nd": 2, "LSTM": 3, "LSTM+Sup": 4, "LSTM+Nd": 5} | {
    "Tf+stack": 1,
    "RNN": 3,
    "stack-RNN": 4,
}
"""The style of a model, the same in all figures."""
SCORES = {
    "accuracy_greedy": "accuracy of greedy predictions",
    "accuracy": "accuracy",
    "cross_entropy_difference": "nats per symbol above the bound",
}
"""Scores by length; of those that a task has, the first is drawn."""


@dataclass(frozen=True)
class Pair:
    """A published number and ours, with half the widths of their 95 % intervals."""

    label: str
    published: Number
    ours: Number


def pairs(rows: Sequence[Row]) -> list[Pair]:
    """Return the published numbers of a table that have one of ours, each once."""
    found: dict[str, Pair] = {}
    shown = [row for row in rows if row.ours and row.finding.published.values]
    sources = dict.fromkeys(row.finding.results for row in shown)
    scores = {name for row in shown if (name := score_name(row.finding))}
    for row in shown:
        source = f" [{Path(row.finding.results).name}]" if row.finding.results and len(sources) > 1 else ""
        score = f", {score_name(row.finding)}" if len(scores) > 1 and not row.finding.against else ""
        published = row.finding.published
        for place, (value, ours) in enumerate(zip(published.values, row.ours, strict=False)):
            label = row.labels[place] + score + source
            interval = None
            if place < len(published.deviations):
                error = published.deviations[place] / math.sqrt(published.seeds - 1)  # of populations: divided by n
                interval = critical_value(published.seeds) * error
            found.setdefault(label, Pair(label, Number(value, interval), ours))
    return list(found.values())


def draw_pairs(found: Sequence[Pair], about: str) -> Figure:
    """Draw a line for each pair: a hollow point for the published number, a filled one for ours."""
    label = fill(about, 60)
    figure = new_figure(6.5, 0.75 + 0.15 * len(label.splitlines()) + 0.32 * len(found))
    axes = figure.subplots()
    for place, pair in enumerate(found):
        for number, color, face, shift in (
            (pair.published, PUBLISHED, "none", -0.13),
            (pair.ours, OURS, OURS, 0.13),
        ):
            axes.errorbar(
                number.value, place + shift, xerr=number.interval, fmt="o", color=color, markerfacecolor=face, capsize=2
            )
    axes.set_yticks(range(len(found)), [pair.label for pair in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel(label)
    handles = [
        Line2D([], [], marker="o", linestyle="none", color=PUBLISHED, markerfacecolor="none"),
        Line2D([], [], marker="o", linestyle="none", color=OURS),
    ]
    figure.legend(handles, ["published", "ours"], loc="outside upper left", ncols=2)
    return figure


@dataclass(frozen=True)
class Curve:
    """Scores of a cell by length, one row a trial."""

    panel: str
    model: str
    lengths: list[int]
    scores: list[list[float]]


def curves(name: str) -> tuple[list[Curve], str, int]:
    """Return the curves of stored results, the score, and the longest training length; no curves without lengths."""
    found, score, longest = [], "", 0
    for row in stored(name).rows:
        tests = [trial["scores"].get("test") for trial in stored(name).trials_of(row.cell)]
        scored = [test for test in tests if test and len(test["by_length"]) > 1 and "train_lengths" in test["data"]]
        if not scored:
            continue
        longest = scored[0]["data"]["train_lengths"][1]
        score = next(name for name in SCORES if scored[0][name] is not None)
        cell = dict(row.cell)
        model = cell.pop("model")
        lengths = [each["length"] for each in scored[0]["by_length"]]
        scores = [[each[score] for each in test["by_length"]] for test in scored]
        found.append(Curve(", ".join(cell.values()), model, lengths, scores))
    return found, score, longest


def draw_curves(found: Sequence[Curve], score: str, longest: int) -> Figure:
    """Draw a panel for each language or task: means, the range of the trials, and the longest training length."""
    panels = list(dict.fromkeys(curve.panel for curve in found))
    columns = 3 if max(map(len, panels)) < 20 else 2
    rows = -(-len(panels) // columns)
    figure = new_figure(6.5, 0.6 + 1.7 * rows)
    grid = [*figure.subplots(rows, min(columns, len(panels)), squeeze=False, sharex=True).flat]
    handles: dict[str, Line2D] = {}
    for axes, panel in zip(grid, panels, strict=False):
        for curve in (each for each in found if each.panel == panel):
            style, by_length = line_style(MODELS[curve.model]), list(zip(*curve.scores, strict=True))
            (handles[curve.model],) = axes.plot(
                curve.lengths, [mean(each) for each in by_length], color=style.color, linestyle=style.dash
            )
            ends = [min(each) for each in by_length], [max(each) for each in by_length]
            axes.fill_between(curve.lengths, *ends, color=style.color, alpha=0.12, linewidth=0)
        axes.axvline(longest, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
        axes.set_title(panel)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.tick_params(labelbottom=True)  # also where the panel below is missing
    figure.supylabel(
        "nats above the bound" if score == "cross_entropy_difference" else "accuracy", fontsize=9, color=MUTED
    )
    figure.supxlabel(f"length; the line is at {longest}, the longest of training", fontsize=9, color=MUTED)
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=6)
    return figure


@contextmanager
def drawing_style(stem: str) -> Iterator[None]:
    """Draw with the style of all figures, and a font that is the same on every machine."""
    with figure_style(stem):
        mpl.rcParams["font.sans-serif"] = ["DejaVu Sans"]
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG without a date."""
    drawing = StringIO()
    figure.savefig(drawing, format="svg", metadata={"Date": None})
    shortened = re.sub(r"([.][0-9]{2})[0-9]+", r"\1", drawing.getvalue())  # hundredths of a point are enough
    path.write_text(shortened, encoding="utf-8")


def write_figures(table: Table, rows: Sequence[Row], folder: Path, stem: str) -> list[tuple[str, str]]:
    """Write the figures of a table as SVG; return their names and captions."""
    drawn = []
    title = table.name[0].upper() + table.name[1:]
    names = dict.fromkeys(row.finding.results for row in rows if row.finding.results)
    with drawing_style(stem):
        if found := pairs(rows):
            caption = (
                f"{table.name}, {table.about}: published (hollow) and ours, with 95 % intervals where there are seeds."
            )
            drawn.append((f"{stem}.svg", caption, draw_pairs(found, table.about)))
        for name in names:
            lines, score, longest = curves(name)
            if lines:
                caption = f"{title} by length: {SCORES[score]}, means over the trials of {name}, shaded their range."
                drawn.append((f"{stem}-{Path(name).name}-by-length.svg", caption, draw_curves(lines, score, longest)))
        for file, _, figure in drawn:
            save(figure, folder / file)
    return [(file, caption) for file, caption, _ in drawn]
