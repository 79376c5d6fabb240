"""The extracted automata of runs, in reports."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from structattn.extraction.files import KIND
from structattn.report.page import MISSING, Markup, joined, number_cell, stacked_table, tag
from structattn.report.runs import Run
from structattn.report.style import LineStyle
from structattn.report.tables import swatch


def extraction_section(runs: Sequence[tuple[Run, LineStyle]], report: Path) -> Markup:
    """Return the verdict, the sizes and the grammar of each extracted automaton, with links to their pages.

    Args:
        runs: with the analyses that ``structattn extract`` wrote.
        report: the folder of the report, from which links lead to pages that exist.
    """
    found = [(run, style, content) for run, style in runs for content in run.analyses_of_kind(KIND)]
    if not found:
        return Markup("")
    rows = [[_name(run, style, content, report), *_cells(content)] for run, style, content in found]
    grammars = [_grammar(run, content) for run, _, content in found if content["grammar"]]
    note = "The page of each automaton, which structattn extract has written, says how it was found."
    return joined(
        tag("h3", "What the stacks have learned"),
        stacked_table(("run", "automaton", "controls", "transitions", "causal check, nats"), rows),
        *grammars,
        tag("p", note, class_="note"),
    )


def _name(run: Run, style: LineStyle, content: Mapping[str, Any], report: Path) -> Markup:
    page = run.folder / os.fsdecode(unquote_to_bytes(content["page"]))
    name = joined(swatch(style), run.name)
    if not page.is_file():
        return tag("th", name)
    return tag("th", tag("a", name, href=quote(os.fsencode(Path(os.path.relpath(page, report)).as_posix()))))


def _cells(content: Mapping[str, Any]) -> list[Markup]:
    automaton = content["automaton"]
    sizes = [MISSING] * 2
    if automaton is not None:
        controls = {each[side] for each in automaton["transitions"] for side in ("source", "target")}
        sizes = [str(len(controls)), str(len(automaton["transitions"]))]
    verdict = tag("td", f"{content['verdict']}: {'; '.join(content['reasons'])}", style="white-space:normal")
    return [verdict, *map(number_cell, (*sizes, f"{content['causal_check']['difference']:+.4f}"))]


def _grammar(run: Run, content: Mapping[str, Any]) -> Markup:
    return tag("details", tag("summary", f"Grammar of {run.name}"), tag("pre", str(content["grammar"])))
