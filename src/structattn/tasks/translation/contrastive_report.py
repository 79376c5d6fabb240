"""Tables and figures of accuracy on contrastive pairs (You et al. 2020, table 4, figure 5)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from structattn.report.figure import Plot, figure_element, figure_style, file_name, legend_above, new_figure
from structattn.report.page import MISSING, Markup, count, joined, number_cell, table, tag, with_interval
from structattn.report.runs import Run, digests_of_suite
from structattn.report.style import LINE, LineStyle, first_drawn, side_offset
from structattn.report.tables import swatch
from structattn.support.grouping import grouped, numbered

Proportions = Mapping[str, Mapping[str, Any]]  # name -> trials, successes, value, lower, upper
Scored = Sequence[tuple[Run, LineStyle, Mapping[str, Any]]]

_SPREAD = 0.5  # fraction of the distance between two rows over which runs are spread
_CAPTION = (
    "Contrastive pairs, {name}: accuracy in percent (how often the reference is strictly more likely than the same "
    "translation with an error) by {by}, with 95 % Wilson intervals. Log-probabilities {what}, <eos> included."
)


def contrastive_sections(runs: Sequence[tuple[Run, LineStyle]], prefix: str, folder: Path) -> Markup:
    """Return figures and a table for each suite that runs were evaluated on; empty if there is none."""
    scored = [(run, style, scores) for run, style in runs for scores in run.analyses_of_kind("contrastive")]
    groups = grouped(scored, lambda each: (_title(each[2]), digests_of_suite(each[2])))
    titles = numbered(title for title, _ in groups)
    return joined(*[_section(*each, prefix, folder) for each in zip(titles, groups.values(), strict=True)])


def _title(scores: Mapping[str, Any]) -> str:
    return f"{scores['name']}, per token" if scores["per_token"] else str(scores["name"])


def _section(title: str, scored: Scored, prefix: str, folder: Path) -> Markup:
    name, what = scored[0][2]["name"], "per token" if scored[0][2]["per_token"] else "of the whole sentence"
    stem = prefix, "contrastive", title
    caption, shown = _CAPTION.format(name=name, by="{by}", what=what), first_drawn(scored)
    plots = [_types_plot(shown, file_name(*stem), caption.format(by="type of error"))]
    plots += [
        _distances_plot(shown, kind, file_name(*stem, kind), caption.format(by=f"distance in words, {kind}"))
        for kind in _names(scores["distances"] for *_, scores in scored)
    ]
    figures = [figure_element(plot, folder) for plot in plots]
    return joined(tag("h3", f"Contrastive pairs: {title}"), _table(scored), *figures)


def _names(of_runs: Any) -> list[str]:
    """Return the names that occur in any run, in order of first occurrence."""
    return list(dict.fromkeys(name for of_run in of_runs for name in of_run))


def _ends(rows: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return the lengths of the lower and upper error bars, in percent."""
    below = [max(0.0, 100 * (row["value"] - row["lower"])) for row in rows]
    return [below, [max(0.0, 100 * (row["upper"] - row["value"])) for row in rows]]


def _types_plot(scored: Scored, name: str, caption: str) -> Plot:
    kinds = _names(scores["types"] for *_, scores in scored)
    with figure_style(name):
        figure = new_figure(9.0, 0.9 + len(kinds) * (0.22 + 0.13 * len(scored)))
        axes = figure.add_subplot()
        axes.axvline(50, color=LINE, linewidth=1.0, zorder=0.5)
        bars = []
        for number, (_, style, scores) in enumerate(scored):
            shown = [kind for kind in kinds if kind in scores["types"]]
            rows, aside = [scores["types"][kind] for kind in shown], side_offset(number, len(scored), _SPREAD)
            places = [kinds.index(kind) + aside for kind in shown]
            values = [100 * row["value"] for row in rows]
            bars.append(
                axes.errorbar(values, places, xerr=_ends(rows), color=style.color, marker=style.marker, linestyle="")
            )
        axes.set_yticks(range(len(kinds)), kinds)
        axes.set_ylim(len(kinds) - 0.5, -0.5)
        axes.set_xlim(-2, 102)
        axes.set_xlabel("accuracy (%)")
        legend_above(figure, [bar.lines[0] for bar in bars], [run.name for run, *_ in scored])
    return Plot(name, figure, caption)


def _distances_plot(scored: Scored, kind: str, name: str, caption: str) -> Plot:
    with_distances = [each for each in scored if kind in each[2]["distances"]]
    many = len(with_distances)
    distances = sorted(
        _names(scores["distances"][kind] for *_, scores in with_distances),
        key=lambda words: (">" in words, len(words), words),
    )
    with figure_style(name):
        figure = new_figure(9.0, 3.4)
        axes = figure.add_subplot()
        bars = [
            _draw_distances(axes, scores["distances"][kind], distances, style, side_offset(number, many, _SPREAD))
            for number, (_, style, scores) in enumerate(with_distances)
        ]
        axes.set_xticks(range(len(distances)), distances)
        axes.set_xlabel("distance in words")
        axes.set_ylabel("accuracy (%)")
        legend_above(figure, [bar.lines[0] for bar in bars], [run.name for run, *_ in with_distances])
    return Plot(name, figure, caption)


def _draw_distances(
    axes: Axes, accuracies: Proportions, distances: list[str], style: LineStyle, aside: float
) -> ErrorbarContainer:
    rows = [accuracies[distance] for distance in distances if distance in accuracies]
    places = [place + aside for place, distance in enumerate(distances) if distance in accuracies]
    values = [100 * row["value"] for row in rows]
    return axes.errorbar(
        places, values, yerr=np.array(_ends(rows)), color=style.color, marker=style.marker, linestyle=style.dash,
        elinewidth=1.0,
    )  # fmt: skip


def _table(scored: Scored) -> Markup:
    """One row for each type and each of its distances, one column for each run."""
    head = [tag("th", "type of error"), tag("th", "pairs", class_="number")]
    head += [tag("th", swatch(style), run.name, class_="number") for run, style, _ in scored]
    rows = []
    for kind in _names(of_run["types"] for *_, of_run in scored):
        rows.append(_row(kind, [of_run["types"].get(kind) for *_, of_run in scored]))
        of_runs = [of_run["distances"].get(kind, {}) for *_, of_run in scored]
        rows += [_row(f"· distance {words}", [of_run.get(words) for of_run in of_runs]) for words in _names(of_runs)]
    return table(head, rows)


def _row(name: str, cells: Sequence[Mapping[str, Any] | None]) -> list[Markup]:
    pairs = next((cell["trials"] for cell in cells if cell is not None), None)
    texts = (MISSING if cell is None else with_interval(cell, "–") for cell in cells)
    return [tag("th", name, scope="row"), number_cell(count(pairs)), *map(number_cell, texts)]
