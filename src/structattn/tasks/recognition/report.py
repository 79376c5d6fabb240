"""Tables of recognition, for terminals and reports."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from structattn.report.page import Markup, joined
from structattn.report.runs import Run
from structattn.report.style import LineStyle
from structattn.report.tables import all_splits, table_of_rows

Recognition = Mapping[str, Mapping[str, Mapping[str, Any]]]  # RecognitionScores as mappings

CAPTION: Final = (
    "Percent of strings with the right label, by length, with 95 % intervals (Wilson). Well-shaped negatives satisfy "
    "the rule of shape of the language or, if it has none, have the neighbours of training members. Rules: the more "
    "frequent label; whether members have the length; whether training members have the neighbours; whether the counts "
    "of symbols at odd and at even positions satisfy the linear equations of training members; the shape."
)


def bands(every: Sequence[Recognition]) -> list[str]:
    """Return the bands of lengths that occur, in increasing order."""
    found = {band for scores in every for each in scores["rules"].values() for band in each}
    return sorted(found, key=lambda band: int(band.partition("-")[0].rstrip("+")) if band[0].isdigit() else -1)


def rows(scores: Recognition, of_bands: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the name and the cells of each group, then of each rule."""
    named = {**scores["groups"], **{f"rule: {name}": each for name, each in scores["rules"].items()}}
    return [(name, [_cell(each.get(band)) for band in of_bands]) for name, each in named.items()]


def _cell(proportion: Mapping[str, float] | None) -> str:
    if proportion is None:
        return ""
    value, lower, upper = (100 * proportion[name] for name in ("value", "lower", "upper"))
    return f"{value:.1f} [{lower:.1f}, {upper:.1f}]"


def recognition_sections(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table for each split with scores of recognition; empty if there is none."""
    return joined(*[_section(runs, split) for split in all_splits([run for run, _ in runs])])


def _section(runs: Sequence[tuple[Run, LineStyle]], split: str) -> Markup:
    scored = [(run, style, scores) for run, style in runs if (scores := run.scores.get(split, {}).get("recognition"))]
    if not scored:
        return Markup("")
    columns = bands([scores for *_, scores in scored])
    body = [(run, style, rows(scores, columns)) for run, style, scores in scored]
    title = f"Recognition by kind of string and length: {split}"
    return table_of_rows(title, ("strings", *columns), body, CAPTION)
