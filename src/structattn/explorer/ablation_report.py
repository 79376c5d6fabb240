"""The table of ablations in a report."""

from collections.abc import Mapping, Sequence
from typing import Any

from structattn.report.page import Markup, joined, nats, number_cell, table, tag
from structattn.report.runs import Run
from structattn.report.style import LineStyle
from structattn.report.tables import swatch

_NOTE = (
    "Increase of the validation cross-entropy, in nats, without a sublayer and without each of its heads, whose "
    "outputs are replaced by zeros; nothing is trained anew."
)


def ablation_section(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table for each run that was ablated; empty if none was."""
    ablated = [(run, style, each) for run, style in runs for each in run.analyses_of_kind("ablation")]
    tables = [_table(run, style, each) for run, style, each in ablated]
    return joined(tag("h3", "Ablation"), *tables, tag("p", _NOTE, class_="note")) if tables else Markup("")


def _table(run: Run, style: LineStyle, ablation: Mapping[str, Any]) -> Markup:
    most = most_heads(ablation["sublayers"])
    rows = [[tag("th", name, scope="row"), *map(number_cell, rises)] for name, rises in ablation_rows(ablation, most)]
    head = [tag("th", "sublayer"), *[tag("th", name, class_="number") for name in headings(most)]]
    title = tag("h4", swatch(style), f"{run.name}: cross-entropy {nats(ablation['cross_entropy'])} nats per {run.unit}")
    return joined(title, table(head, rows))


def headings(most: int) -> list[str]:
    """Return the headings of the numbers of ``ablation_rows``; heads count from 1."""
    return ["whole", *(f"head {head + 1}" for head in range(most))]


def most_heads(sublayers: Sequence[Mapping[str, Any]]) -> int:
    """Return the largest number of heads of a sublayer."""
    return max((len(each["heads"]) for each in sublayers), default=0)


def ablation_rows(ablation: Mapping[str, Any], most: int) -> list[tuple[str, list[str]]]:
    """Return the name of each sublayer, and the increase of the cross-entropy without it and without each of its heads.

    Layers count from 1.

    Args:
        ablation: the fields of an ``Ablation``.
        most: the number of heads in a row; those that a sublayer does not have are empty.
    """
    rows = []
    for each in ablation["sublayers"]:
        place = f"{each['side'] or ''} layer {each['layer'] + 1}".lstrip()
        rises = [f"{value - ablation['cross_entropy']:+z.4f}" for value in (each["whole"], *each["heads"])]
        name = f"{place}, {each['sublayer']}: {each['module']}"
        rows.append((name, [*rises, *[""] * (most - len(each["heads"]))]))
    return rows
