"""Tables of SyntaxGym's suites."""

from collections.abc import Mapping, Sequence
from typing import Any

from structattn.report.page import MISSING, Markup, joined, number_cell, on_known, stacked_table, tag, with_interval
from structattn.report.runs import Run
from structattn.report.style import LineStyle
from structattn.support.grouping import numbered

_NOTE = (
    "SyntaxGym: percent of the items of which a prediction about the surprisals of regions holds, with 95 % Wilson "
    "intervals. {known}all: all predictions of the suite hold."
)
_KNOWN = "In brackets the share of the items without <unk>, and the percent of those. "


def syntaxgym_section(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table of the suites that runs were evaluated on; empty if there is none.

    Suites are told apart by the names of their files, as several files may state one name.
    """
    rows: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for run, _ in runs:
        for file, scores in run.analyses.items():
            for each in (scores["overall"], *scores["predictions"]) if scores.get("kind") == "syntaxgym" else ():
                rows.setdefault((file, scores["name"], each["formula"]), {})[run.name] = each
    if not rows:
        return Markup("")
    suites = list(dict.fromkeys((file, name) for file, name, _ in rows))
    titles = dict(zip(suites, numbered(name for _, name in suites), strict=True))
    names = list(dict.fromkeys(name for of_runs in rows.values() for name in of_runs))
    cells = [
        [
            tag("th", f"{titles[file, suite]}: {formula}", scope="row"),
            *[number_cell(written(of_runs[name]) if name in of_runs else MISSING) for name in names],
        ]
        for (file, suite, formula), of_runs in rows.items()
    ]
    accuracies = (each for of_runs in rows.values() for each in of_runs.values())
    some_unknown = any(on_known(each["known"], each["items"]) for each in accuracies)
    note = tag("p", _NOTE.format(known=_KNOWN if some_unknown else ""), class_="note")
    return joined(tag("h3", "SyntaxGym"), stacked_table(["suite: prediction", *names], cells), note)


def written(accuracy: Mapping[str, Any]) -> str:
    """Return an accuracy in percent with its interval, and that on the items without ``<unk>`` where some have any."""
    return f"{with_interval(accuracy['items'])} {on_known(accuracy['known'], accuracy['items'])}".rstrip()
