"""Tables of minimal pairs, beside the published accuracy on BLiMP (Warstadt et al. 2020, Table 3, erratum 2021).

Accuracy by field is the mean over the paradigms of the field in the authors' summary file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from structattn.report.page import MISSING, Markup, joined, number_cell, on_known, stacked_table, tag, with_interval
from structattn.report.runs import Run, digests_of_suite
from structattn.report.style import LineStyle
from structattn.support.grouping import grouped, numbered
from structattn.tasks.minimal_pairs.data import BLIMP, FIELDS, PHENOMENA


@dataclass(frozen=True)
class PublishedAccuracy:
    """Accuracy of a system of the paper, in percent: over the 67 paradigms, and those of each group if published."""

    training: str
    overall: float
    phenomena: Mapping[str, float]
    fields: Mapping[str, float]


def _published(training: str, overall: float, phenomena: str, fields: str = "") -> PublishedAccuracy:
    values = map(float, phenomena.split()), map(float, fields.split())
    by_field = dict(zip(FIELDS, values[1], strict=True)) if fields else {}
    return PublishedAccuracy(training, overall, dict(zip(PHENOMENA, values[0], strict=True)), by_field)


PUBLISHED: Mapping[str, PublishedAccuracy] = MappingProxyType(
    {
        "5-gram": _published(
            "Gigaword, 3.1 billion tokens", 61.2,
            "47.9 71.9 64.4 68.5 70.0 36.9 60.2 79.5 57.2 45.5 53.5 60.3", "61.5 65.4 62.0 50.9",
        ),
        "LSTM": _published(
            "Wikipedia, 83 million tokens", 69.8,
            "91.7 73.2 73.5 67.0 85.4 67.6 73.9 89.1 46.6 51.7 64.5 80.1", "64.8 84.7 64.9 62.2",
        ),
        "Transformer-XL": _published(
            "WikiText-103, 103 million tokens", 69.6,
            "94.1 72.2 74.7 71.5 83.0 77.2 66.6 78.2 48.4 55.2 69.3 76.0", "63.7 81.3 70.0 62.8",
        ),
        "GPT-2": _published(
            "WebText, about 8 billion tokens", 83.0,
            "99.3 81.8 80.9 81.9 95.8 89.3 81.3 91.9 72.7 76.8 79.0 86.4", "79.4 92.6 80.6 78.0",
        ),
        "human": _published(
            "single annotators", 88.6,
            "97.5 90.0 87.3 83.9 92.2 85.0 86.9 97.0 84.9 88.1 86.6 90.9",
        ),
    }
)  # fmt: skip
"""System -> its accuracy."""


Accuracy = Mapping[str, Any]  # a MinimalPairAccuracy as a mapping


class Row(NamedTuple):
    """Accuracy on a group of pairs: of each run, None where it was not scored on them, and published, in percent."""

    name: str
    runs: tuple[Accuracy | None, ...]
    published: Mapping[str, float]


def summary_rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return all pairs, then each field and each phenomenon, those of BLiMP first."""
    rows = [Row("all", tuple(each["overall"] for each in results), {s: of.overall for s, of in PUBLISHED.items()})]
    for group, known in (("fields", FIELDS), ("phenomena", PHENOMENA)):
        names = dict.fromkeys((*known, *(name for each in results for name in each[group])))
        for name in names:
            of_runs = tuple(each[group].get(name) for each in results)
            published = {s: getattr(of, group)[name] for s, of in PUBLISHED.items() if name in getattr(of, group)}
            if any(of_runs):
                rows.append(Row(name, of_runs, published))
    return rows


def paradigm_rows(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Row]]:
    """Return the paradigms of each phenomenon: phenomenon -> rows, both in alphabetical order."""
    phenomena = {paradigm: name for each in results for paradigm, name in each["phenomenon_of"].items()}
    rows: dict[str, list[Row]] = {name: [] for name in sorted(set(phenomena.values()))}
    for paradigm in sorted(phenomena):
        of_runs = tuple(each["paradigms"].get(paradigm) for each in results)
        rows[phenomena[paradigm]].append(Row(paradigm, of_runs, {}))
    return rows


Scored = Sequence[tuple[str, Mapping[str, Any]]]  # names and scores of runs

_NOTE = (
    "{name}: accuracy in percent, how often log p of the acceptable sentence is strictly greater than that of the "
    "unacceptable one, with 95 % Wilson intervals; chance is 50. {known}{published}"
)
_KNOWN = "In brackets the share of the pairs without <unk>, and the accuracy on them. "
_SOURCE = "Published: Warstadt et al. (2020), table 3 as corrected; trained on {training}."
METHODS = {"one_prefix": "one prefix", "two_prefix": "two prefixes"}


def systems_of(name: str) -> tuple[str, ...]:
    """Return the systems whose published accuracy belongs beside that on the pairs of a suite."""
    return tuple(PUBLISHED) if name == BLIMP else ()


def blimp_section(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return the tables of each suite of minimal pairs that runs were evaluated on; empty if there is none."""
    scored = [(run.name, scores) for run, _ in runs for scores in run.analyses_of_kind("blimp")]
    suites = grouped(scored, lambda each: (each[1]["name"], digests_of_suite(each[1])))
    return joined(*map(_suite, numbered(name for name, _ in suites), suites.values()))


def _suite(name: str, scored: Scored) -> Markup:
    names, results = [run for run, _ in scored], [scores for _, scores in scored]
    systems = systems_of(results[0]["name"])
    groups = stacked_table(["group", *names, *systems], [_table_row(row, systems) for row in summary_rows(results)])
    paradigms = [
        joined(tag("h4", phenomenon), stacked_table(["paradigm", *names], [_table_row(row) for row in rows]))
        for phenomenon, rows in paradigm_rows(results).items()
    ]
    training = ", ".join(f"{system}: {PUBLISHED[system].training}" for system in systems)
    note = _NOTE.format(
        name=name,
        known=_KNOWN
        if any(on_known(each["overall"]["known"], each["overall"]["sentence"]) for each in results)
        else "",
        published=_SOURCE.format(training=training) if systems else "",
    )
    return joined(
        tag("h3", f"Minimal pairs: {name}"), groups, tag("p", note, class_="note"),
        tag("details", tag("summary", "Paradigms"), *paradigms),
    )  # fmt: skip


def _table_row(row: Row, systems: Sequence[str] = ()) -> list[Markup]:
    published = [f"{row.published[system]:.1f}" if system in row.published else MISSING for system in systems]
    return [
        tag("th", row.name, scope="row"),
        *[number_cell(tag("div", *_written(accuracy))) for accuracy in row.runs],
        *map(number_cell, published),
    ]


def _written(accuracy: Accuracy | None) -> list[str]:
    if accuracy is None:
        return [MISSING]
    parts = [with_interval(accuracy["sentence"], "–")]
    if known := on_known(accuracy["known"], accuracy["sentence"]):
        parts.append(f" {known}")
    others = [f"{name}: {100 * accuracy[key]['value']:.1f}" for key, name in METHODS.items() if accuracy[key]]
    return [*parts, tag("div", ", ".join(others), class_="model")] if others else parts
