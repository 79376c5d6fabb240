"""Tables of SyntaxGym's suites."""

from collections.abc import Mapping, Sequence
from typing import Any

from structattn.report.page import MISSING, Markup, joined, number_cell, on_known, stacked_table, tag, with_interval
from structattn.report.runs import Run, digests_of_suite
from structattn.report.style import LineStyle
from structattn.support.grouping import numbered
from structattn.tasks.syntaxgym.data import STRICT

_NOTE = (
    "SyntaxGym: percent of the items of which a prediction about the surprisals of regions holds, with 95 % Wilson "
    "intervals. {known}all: all predictions of the suite hold."
)
MODEL_CAPTION = (
    "Percent, of the first prediction of each suite, as published / of all its predictions. Circuits: means of suites."
)
_KNOWN = "In brackets the share of the items without <unk>, and the percent of those. "


def syntaxgym_section(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table of the suites that runs were evaluated on; empty if there is none.

    Suites are told apart by their files, as several may state one name.
    """
    rows: dict[tuple[str | frozenset[str], str, str], dict[str, Mapping[str, Any]]] = {}
    for run, _ in runs:
        for file, scores in run.analyses.items():
            if scores.get("kind") != "syntaxgym":
                continue
            suite = digests_of_suite(scores) or file, scores["name"]
            for each in (scores["overall"], *scores["predictions"]):
                rows.setdefault((*suite, each["formula"]), {})[run.name] = each
    if not rows:
        return Markup("")
    suites = list(dict.fromkeys((files, name) for files, name, _ in rows))
    titles = dict(zip(suites, numbered(name for _, name in suites), strict=True))
    names = list(dict.fromkeys(name for of_runs in rows.values() for name in of_runs))
    cells = [
        [
            tag("th", f"{titles[files, name]}: {formula}", scope="row"),
            *[number_cell(written(of_runs[run]) if run in of_runs else MISSING) for run in names],
        ]
        for (files, name, formula), of_runs in rows.items()
    ]
    accuracies = (each for of_runs in rows.values() for each in of_runs.values())
    some_unknown = any(on_known(each["known"], each["items"]) for each in accuracies)
    note = tag("p", _NOTE.format(known=_KNOWN if some_unknown else ""), class_="note")
    return joined(tag("h3", "SyntaxGym"), _model_table(runs), stacked_table(["suite: prediction", *names], cells), note)


def _model_table(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table of the scores over several suites; empty if no run has them."""
    scored = [(run.name, each["scores"]) for run, _ in runs for each in run.analyses_of_kind("syntaxgym_scores")]
    if not scored:
        return Markup("")
    cells = [
        [tag("th", name, scope="row"), *map(number_cell, numbers)]
        for name, numbers in model_rows([scores for _, scores in scored])
    ]
    note = tag("p", MODEL_CAPTION, class_="note")
    return joined(stacked_table(["score", *numbered(name for name, _ in scored)], cells), note)


def model_rows(of_runs: Sequence[Mapping[str, float]]) -> list[tuple[str, list[str]]]:
    """Return the name of each score over several suites, with that of each run in percent, see ``MODEL_CAPTION``."""
    names = dict.fromkeys(name.removesuffix(STRICT) for scores in of_runs for name in scores)

    def shown(scores: Mapping[str, float], name: str) -> str:
        numbers = (scores[each] for each in (name, f"{name}{STRICT}") if each in scores)
        return " / ".join(f"{100 * each:.1f}" for each in numbers) or MISSING

    return [(name.replace("_", " "), [shown(scores, name) for scores in of_runs]) for name in names]


def written(accuracy: Mapping[str, Any]) -> str:
    """Return an accuracy in percent with its interval, and that on the items without ``<unk>`` where some have any."""
    return f"{with_interval(accuracy['items'])} {on_known(accuracy['known'], accuracy['items'])}".rstrip()
