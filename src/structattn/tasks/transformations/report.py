"""Tables of question formation and tense reinflection (McCoy et al. 2020; DuSell & Cotterell 2025)."""

from collections.abc import Sequence

from structattn.report.figure import LineStyle
from structattn.report.markup import Markup, joined, table, tag
from structattn.report.runs import Run
from structattn.report.tables import all_splits, swatch
from structattn.tasks.transformations.table import CAPTION, cells, headings


def transformation_sections(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table for each split with scores of transformations; empty if there is none."""
    return joined(*[_section(runs, split) for split in all_splits([run for run, _ in runs])])


def _section(runs: Sequence[tuple[Run, LineStyle]], split: str) -> Markup:
    scored = [(run, style, found) for run, style in runs if (found := run.scores.get(split, {}).get("transformation"))]
    if not scored:
        return Markup("")
    every = {
        f"{number} {group}": scores for number, (*_, found) in enumerate(scored) for group, scores in found.items()
    }
    head = [tag("th", "run"), tag("th", "subject"), *[tag("th", each, class_="number") for each in headings(every)]]
    rows = [
        [
            tag("th", swatch(style), run.name, scope="row"),
            tag("td", group),
            *[tag("td", cell, class_="number") for cell in cells(every, scores)],
        ]
        for run, style, found in scored
        for group, scores in found.items()
    ]
    title = tag("h3", f"Hierarchical and linear generalisation: {split}")
    return joined(title, table([tag("tr", *head)], rows), tag("p", CAPTION, class_="note"))
