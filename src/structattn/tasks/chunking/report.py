"""Tables of chunking probes, beside the published one (the Discrete Transformer paper, table 2)."""

from collections.abc import Mapping, Sequence
from typing import Any

from structattn.report.page import Markup, joined, number_cell, points, table, tag
from structattn.report.runs import Run
from structattn.report.style import LineStyle
from structattn.report.tables import swatch
from structattn.support.grouping import grouped, numbered

HEADINGS = ("accuracy", "precision", "recall", "F1")
MAJORITY = "most frequent chunk tag of each part of speech"
_PUBLISHED = {
    MAJORITY: (None, 72.58, 82.14, 77.07),
    "transformer": (89.83, 82.25, 87.58, 84.83),
    "single stream": (90.70, 83.78, 88.45, 86.05),
    "two streams, syntactic": (91.80, 85.39, 89.51, 87.40),
    "two streams, semantic": (83.17, 73.07, 81.28, 76.96),
}
_NOTE = (
    "Chunks found by one linear layer in the frozen hidden states of the top layer, at the first subword of each word; "
    "scores in percent as conlleval computes them. Published: Discrete Transformer, table 2, on CoNLL-2000, encoders "
    "of WMT16, English to German."
)

Probed = Sequence[tuple[Run, LineStyle, Mapping[str, Any]]]


def chunking_sections(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table for each corpus with all runs and streams, and the published scores; empty if there is none.

    Corpora of one name are told apart by their baselines, which do not depend on runs.
    """
    probed = [(run, style, probes) for run, style in runs for probes in run.analyses_of_kind("chunking")]
    groups = grouped(probed, lambda each: (each[2]["corpus"], values_of(each[2]["baseline"])))
    return joined(*map(_section, numbered(corpus for corpus, _ in groups), groups.values()))


def _section(corpus: str, probed: Probed) -> Markup:
    rows = [
        _row(joined(swatch(style), run.name, f", {each['stream']}" if each["stream"] else ""), each["scores"])
        for run, style, probes in probed
        for each in probes["streams"]
    ]
    rows.append(_row(joined(MAJORITY), probed[0][2]["baseline"]))
    rows += [
        [tag("th", f"published: {name}", scope="row"), *[number_cell(points(each)) for each in scores]]
        for name, scores in _PUBLISHED.items()
    ]
    head = [tag("th", "hidden states"), *[tag("th", name, class_="number") for name in HEADINGS]]
    return joined(tag("h3", f"Chunking probe: {corpus}"), table(head, rows), tag("p", _NOTE, class_="note"))


def _row(name: Markup, scores: Mapping[str, Any]) -> list[Markup]:
    return [tag("th", name, scope="row"), *[number_cell(points(100 * each)) for each in values_of(scores)]]


def values_of(scores: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the scores of ``HEADINGS``."""
    chunks = scores["overall"]
    return scores["accuracy"], chunks["precision"], chunks["recall"], chunks["f1"]
