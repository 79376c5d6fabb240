"""Tables of SyntaxGym's suites."""

from collections.abc import Mapping, Sequence
from typing import Any

from structattn.report.page import MISSING, Markup, joined, number_cell, stacked_table, tag
from structattn.report.runs import Run
from structattn.report.style import LineStyle

_NOTE = (
    "SyntaxGym: percent of the items of which a prediction about the surprisals of regions holds, with 95 % Wilson "
    "intervals. {known}all: all predictions of the suite hold."
)
_KNOWN = "In brackets the share of the items without <unk>, and the percent of those. "


def syntaxgym_section(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table of the suites that runs were evaluated on; empty if there is none."""
    rows: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for run, _ in runs:
        for scores in run.analyses_of_kind("syntaxgym"):
            for each in (scores["overall"], *scores["predictions"]):
                rows.setdefault((scores["name"], each["formula"]), {})[run.name] = each
    if not rows:
        return Markup("")
    names = list(dict.fromkeys(name for of_runs in rows.values() for name in of_runs))
    cells = [
        [
            tag("th", f"{suite}: {formula}", scope="row"),
            *[number_cell(written(of_runs[name]) if name in of_runs else MISSING) for name in names],
        ]
        for (suite, formula), of_runs in rows.items()
    ]
    some_unknown = any(known_share(each) < 1 for of_runs in rows.values() for each in of_runs.values())
    note = tag("p", _NOTE.format(known=_KNOWN if some_unknown else ""), class_="note")
    return joined(tag("h3", "SyntaxGym"), stacked_table(["suite: prediction", *names], cells), note)


def written(accuracy: Mapping[str, Any]) -> str:
    """Return an accuracy in percent with its interval, and that on the items without ``<unk>`` where some have any."""
    value, lower, upper = (100 * accuracy["items"][name] for name in ("value", "lower", "upper"))
    text = f"{value:.1f} ({lower:.1f} to {upper:.1f})"
    if (share := known_share(accuracy)) == 1:
        return text
    on_known = f": {100 * accuracy['known']['value']:.1f}" if accuracy["known"] else ""
    return f"{text} [{100 * share:.0f} %{on_known}]"


def known_share(accuracy: Mapping[str, Any]) -> float:
    """Return the share of the items without ``<unk>``."""
    known = accuracy["known"]
    return known["trials"] / accuracy["items"]["trials"] if known else 0.0
