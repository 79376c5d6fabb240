"""The tables of language models' differences in cross-entropy from a base."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from structattn.report.page import Markup, joined, number_cell, perplexity, stacked_table, tag
from structattn.report.runs import Run
from structattn.report.style import LineStyle
from structattn.report.tables import OF_TWO_RUNS, caution_of_few, swatch

Found = Mapping[str, Any]  # written by `structattn compare`

_NOTE = (
    "Nats per token, negative differences for better models; 95 % intervals, and p by paired bootstrap resampling of "
    "{examples:,} sequences, or windows of a stream. {of_two}"
)


def likelihood_sections(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table for each base and split that language models were compared on; empty if there is none.

    A comparison of other checkpoints than those of the scores is replaced by a note.
    """
    groups: dict[tuple[str, str], list[tuple[Run, LineStyle, Found]]] = {}
    notes = []
    for run, style in runs:
        for comparison in run.analyses_of_kind("likelihood_comparison"):
            if run.scores.get(comparison["split"], {}).get("checkpoints") in (None, comparison["updates"]["run"]):
                groups.setdefault((comparison["base"], comparison["split"]), []).append((run, style, comparison))
            else:
                note = f"{run.name} was evaluated again after it was compared with {comparison['base']}"
                notes.append(tag("p", f"{note}; run structattn compare again", class_="note"))
    return joined(*notes, *[_section(*of_what, compared) for of_what, compared in groups.items()])


def _section(base: str, split: str, compared: Sequence[tuple[Run, LineStyle, Found]]) -> Markup:
    headings = ("run", "cross-entropy", "95 % interval", "perplexity", "difference", "95 % interval", "p")
    first = compared[0][2]
    rows = [[tag("th", base, scope="row"), *_numbers(first, "first"), *[tag("td", "")] * 3]]
    for run, style, comparison in compared:
        difference = (
            f"{comparison['difference']:+.4f}",
            f"{comparison['lower']:+.4f} to {comparison['upper']:+.4f}",
            f"{comparison['p']:.3f}",
        )
        named = tag("th", swatch(style), run.name, scope="row")
        rows.append([named, *_numbers(comparison, "second"), *map(number_cell, difference)])
    note = _NOTE.format(examples=first["examples"], of_two=OF_TWO_RUNS)
    note += caution_of_few(first["examples"])
    return joined(tag("h3", f"Against {base} ({split})"), stacked_table(headings, rows), tag("p", note, class_="note"))


def _numbers(comparison: Found, which: str) -> list[Markup]:
    value = comparison[which]
    interval = f"{comparison[f'{which}_lower']:.4f} to {comparison[f'{which}_upper']:.4f}"
    return [*map(number_cell, (f"{value:.4f}", interval, perplexity(math.exp(value))))]
