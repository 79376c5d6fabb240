"""Tables of bracketing scores of parsers."""

from collections.abc import Mapping, Sequence
from typing import Any

from structattn.report.page import Markup, joined, number_cell, percent, points, table, tag
from structattn.report.runs import Run
from structattn.report.style import LineStyle
from structattn.report.tables import swatch
from structattn.support.grouping import grouped, numbered

HEADINGS = ("precision", "recall", "F1", "exact", "F1, no labels")
_BASELINES = {"right_branching": "right-branching trees", "left_branching": "left-branching trees"}
_NOTE = (
    "Labelled brackets in percent, as evalb counts them with COLLINS.prm; without labels, each span counts once. "
    "One-sided trees have the most frequent label of the file throughout."
)

Scored = Sequence[tuple[Run, LineStyle, Mapping[str, Any]]]


def parsing_sections(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table for each file of trees that runs were scored on; empty if there is none.

    Files of one name are told apart by the scores of one-sided trees, which do not depend on runs.
    """
    scored = [(run, style, scores) for run, style in runs for scores in run.analyses_of_kind("parsing")]
    groups = grouped(scored, lambda each: (each[2]["name"], tuple(values_of(each[2][key]) for key in _BASELINES)))
    return joined(*map(_section, numbered(name for name, _ in groups), groups.values()))


def _section(name: str, scored: Scored) -> Markup:
    rows = [
        [*_row(joined(swatch(style), run.name), scores["scores"]), number_cell(percent(scores["malformed"]))]
        for run, style, scores in scored
    ]
    rows += [[*_row(joined(title), scored[0][2][key]), number_cell("")] for key, title in _BASELINES.items()]
    head = [tag("th", "trees"), *[tag("th", each, class_="number") for each in (*HEADINGS, "malformed")]]
    return joined(tag("h3", f"Parsing: {name}"), table(head, rows), tag("p", _NOTE, class_="note"))


def _row(title: Markup, scores: Mapping[str, Any]) -> list[Markup]:
    return [tag("th", title, scope="row"), *[number_cell(points(100 * each)) for each in values_of(scores)]]


def values_of(scores: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the scores of ``HEADINGS``."""
    labelled = scores["labelled"]
    return *(labelled[key] for key in ("precision", "recall", "f1", "exact")), scores["unlabelled"]["f1"]
