"""Tables of accuracy on BLiMP's minimal pairs, beside published systems (Warstadt et al. 2020, table 3)."""

from collections.abc import Mapping, Sequence
from typing import Any

from structattn.report.figure import LineStyle
from structattn.report.markup import MISSING, Markup, joined, stacked_table, tag
from structattn.report.runs import Run
from structattn.tasks.minimal_pairs.published import PUBLISHED, Row, known_share, paradigm_rows, summary_rows

Scored = Sequence[tuple[Run, LineStyle, Mapping[str, Any]]]

_NOTE = (
    "BLiMP: accuracy in percent, how often log p of the acceptable sentence is strictly greater than that of the "
    "unacceptable one, with 95 % Wilson intervals; chance is 50. {known}Published: Warstadt et al. (2020), table 3 as "
    "corrected; trained on {training}."
)
_KNOWN = "In brackets the share of the pairs without <unk>, and the accuracy on them. "
_METHODS = {"one_prefix": "one prefix", "two_prefix": "two prefixes"}


def blimp_section(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return the tables of the runs that were evaluated on BLiMP; empty if there is none."""
    scored = [(run, style, found) for run, style in runs for found in run.analyses_of_kind("blimp")]
    if not scored:
        return Markup("")
    results = [found for *_, found in scored]
    names = [run.name for run, *_ in scored]
    groups = stacked_table(["group", *names, *PUBLISHED], [_row(row, [*PUBLISHED]) for row in summary_rows(results)])
    paradigms = [
        joined(tag("h4", phenomenon), stacked_table(["paradigm", *names], [_row(row) for row in rows]))
        for phenomenon, rows in paradigm_rows(results).items()
    ]
    training = ", ".join(f"{name}: {system.training}" for name, system in PUBLISHED.items())
    note = _NOTE.format(
        known=_KNOWN if any(known_share(each["overall"]) < 1 for each in results) else "", training=training
    )
    return joined(
        tag("h3", "Minimal pairs: BLiMP"), groups, tag("p", note, class_="note"),
        tag("details", tag("summary", "Paradigms"), *paradigms),
    )  # fmt: skip


def _row(row: Row, systems: Sequence[str] = ()) -> list[Markup]:
    published = [f"{row.published[system]:.1f}" if system in row.published else MISSING for system in systems]
    return [
        tag("th", row.name, scope="row"),
        *[tag("td", tag("div", *_written(accuracy)), class_="number") for accuracy in row.runs],
        *[tag("td", text, class_="number") for text in published],
    ]


def _written(accuracy: Mapping[str, Any] | None) -> list[str]:
    if accuracy is None or accuracy["sentence"] is None:
        return [MISSING]
    value, lower, upper = (100 * accuracy["sentence"][name] for name in ("value", "lower", "upper"))
    parts = [f"{value:.1f} ({lower:.1f}–{upper:.1f})"]
    if known_share(accuracy) < 1:
        on_known = f": {100 * accuracy['known']['value']:.1f}" if accuracy["known"] else ""
        parts.append(f" [{100 * known_share(accuracy):.0f} %{on_known}]")
    others = [f"{name}: {100 * accuracy[key]['value']:.1f}" for key, name in _METHODS.items() if accuracy[key]]
    return [*parts, tag("div", ", ".join(others), class_="model")] if others else parts
