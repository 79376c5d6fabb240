"""Differences from a base run in all metrics, and in BLEU by bins of sentences (You et al. 2020, figures 4, 6, 8)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from structattn.report.figure import Plot, figure_element, figure_style, file_name, legend_above, new_figure
from structattn.report.page import MISSING, Markup, joined, number_cell, table, tag
from structattn.report.runs import Run
from structattn.report.style import LINE, LineStyle, first_drawn, side_offset
from structattn.report.tables import OF_TWO_RUNS, caution_of_few, swatch
from structattn.runs.store import hypotheses_path
from structattn.support.environment import name_of
from structattn.support.files import sha256_of_file

Found = Mapping[str, Any]  # written by `structattn compare`
Bins = Sequence[Mapping[str, Any]]
Compared = Sequence[tuple[Run, LineStyle, Bins]]
Kind = tuple[str, str]  # the sentence attribute, and how bins are formed

_COLUMNS = 3  # of panels
_SPREAD = 0.35  # fraction of the distance between two bins over which runs are spread
_CAPTION = (
    "Difference in BLEU from {base} on {split}, in bins of sentences, with 95 % intervals by paired bootstrap "
    "resampling. Lengths are in sacrebleu's words. Off-diagonality is the fraction of positions whose largest weight "
    "is at least two positions away, in {base} under teacher forcing, averaged over heads and layers."
)


def comparison_sections(runs: Sequence[tuple[Run, LineStyle]], prefix: str, folder: Path) -> Markup:
    """Return a figure and tables for each base and split that runs were compared on; empty if there is none.

    A comparison of outdated translations is replaced by a note.
    """
    groups: dict[tuple[str, str, str], list[tuple[Run, LineStyle, Found]]] = {}
    notes = []
    for run, style in runs:
        for comparison in run.analyses_of_kind("comparison"):
            if _is_current(comparison, run, [other for other, _ in runs]):
                of_what = comparison["base"], comparison["split"], comparison["translations"]["base"]
                groups.setdefault(of_what, []).append((run, style, comparison))
            else:
                note = f"{run.name} or {comparison['base']} was evaluated again after they were compared"
                notes.append(tag("p", f"{note}; run structattn compare again", class_="note"))
    sections = [
        _section(*of_what[:2], compared, file_name(prefix, *_distinct_name(of_what, list(groups))), folder)
        for of_what, compared in groups.items()
    ]
    return joined(*notes, *sections)


def _distinct_name(of_what: tuple[str, str, str], sections: Sequence[tuple[str, str, str]]) -> tuple[str, ...]:
    """The parts of a figure's file name: split and base, with a number if bases share a name."""
    base, split, _ = of_what
    alike = [other for other in sections if other[:2] == of_what[:2]]
    number = alike.index(of_what) + 1
    return (split, "against", base) if number == 1 else (split, "against", base, str(number))


def _section(
    base: str, split: str, compared: Sequence[tuple[Run, LineStyle, Found]], name: str, folder: Path
) -> Markup:
    bins = [(run, style, comparison["bins"]) for run, style, comparison in compared]
    figure = figure_element(differences_plot(first_drawn(bins), base, split, name), folder)
    by_kind = tag("details", tag("summary", "table of BLEU by bin"), _table(bins, base))
    return joined(tag("h3", f"Against {base} ({split})"), _whole(compared, base), figure, by_kind)


def _is_current(comparison: Found, run: Run, runs: Sequence[Run]) -> bool:
    """Whether run and base still have the compared translations; a base outside the report is not checked."""
    compared, split = comparison.get("translations"), comparison["split"]
    if compared is None:
        return False  # written without digests
    bases = [now for other in runs if name_of(other.folder) == comparison["base"] if (now := _digest(other, split))]
    return _digest(run, split) in (None, compared["run"]) and (not bases or compared["base"] in bases)


def _digest(run: Run, split: str) -> str | None:
    path = hypotheses_path(run.folder, split)
    return sha256_of_file(path) if path.exists() else None


def _whole(compared: Sequence[tuple[Run, LineStyle, Found]], base: str) -> Markup:
    """A row for each metric: the base's score, and every run's with its difference and the probability of chance."""
    head = [tag("th", "metric"), tag("th", base, class_="number")]
    head += [tag("th", swatch(style), run.name, class_="number") for run, style, _ in compared]
    rows = []
    for metric, first in compared[0][2]["whole"].items():
        texts = [f"{first['first']:.2f} ± {first['first_interval']:.2f}"]
        texts += [_against(comparison["whole"][metric]) for *_, comparison in compared]
        rows.append([tag("td", metric), *map(number_cell, texts)])
    signatures = {each["signature"] for *_, comparison in compared for each in comparison["whole"].values()}
    note = f"95 % intervals; p by paired bootstrap resampling. {OF_TWO_RUNS} {'; '.join(sorted(signatures))}."
    bins = compared[0][2]["bins"]
    note += caution_of_few(sum(each["sentences"] for each in _of(bins, _kind(bins[0]))))
    return joined(table(head, rows), tag("p", note, class_="note"))


def _against(metric: Found) -> str:
    score = f"{metric['second']:.2f} ± {metric['second_interval']:.2f}"
    return f"{score} ({metric['second'] - metric['first']:+.2f}, p {metric['p']:.3f})"


def _kinds(compared: Compared) -> list[Kind]:
    kinds = dict.fromkeys(_kind(row) for *_, bins in compared for row in bins)
    return sorted(kinds, key=lambda kind: kind[1])


def _of(bins: Bins, kind: Kind) -> Bins:
    return [row for row in bins if _kind(row) == kind]


def _kind(row: Mapping[str, Any]) -> Kind:
    return row["attribute"], row["binning"]


def _range(row: Mapping[str, Any]) -> tuple[float, float]:
    return row["low"], row["high"]


def _written(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.0f}" if end == int(end) else f"{end:.2f}" for end in ends)
    return low if low == high else f"{low}–{high}"


def differences_plot(compared: Compared, base: str, split: str, name: str) -> Plot:
    """Plot differences in BLEU from a base, with a panel for each sentence attribute and kind of bins."""
    kinds = _kinds(compared)
    columns = min(_COLUMNS, len(kinds))
    lines = -(-len(kinds) // columns)
    with figure_style(name):
        figure = new_figure(11.4, 0.4 + 2.7 * lines)
        grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
        for axes in grid.flat[len(kinds) :]:
            axes.set_axis_off()
        drawn = [_draw(axes, compared, kind) for axes, kind in zip(grid.flat, kinds, strict=False)]
        for row in grid:
            row[0].set_ylabel(f"difference in BLEU from {base}")
        legend_above(figure, [bar.lines[0] for bar in drawn[0]], [run.name for run, *_ in compared])
    return Plot(name, figure, _CAPTION.format(split=split, base=base))


def _draw(axes: Axes, compared: Compared, kind: Kind) -> list[ErrorbarContainer]:
    axes.axhline(0, color=LINE, linewidth=1.0, zorder=0.5)
    bars, ranges = [], dict[tuple[float, float], None]()
    for _, _, bins in compared:
        ranges |= dict.fromkeys(map(_range, _of(bins, kind)))
    places = {ends: place for place, ends in enumerate(ranges)}
    for number, (_, style, bins) in enumerate(compared):
        rows, aside = _of(bins, kind), side_offset(number, len(compared), _SPREAD)
        # an interval of few sentences may not contain the difference
        below = [max(0.0, row["difference"] - row["lower"]) for row in rows]
        above = [max(0.0, row["upper"] - row["difference"]) for row in rows]
        bars.append(
            axes.errorbar(
                [places[_range(row)] + aside for row in rows],
                [row["difference"] for row in rows],
                [below, above],
                color=style.color,
                marker=style.marker,
                linestyle=style.dash,
                elinewidth=1.0,
                capsize=2,
            )
        )
    attribute, binning = kind
    axes.set_title(attribute if attribute == "reference length" else f"{attribute} ({binning})", fontsize=8.5)
    axes.set_xticks(range(len(places)), list(map(_written, places)), fontsize=7.5)
    return bars


def _table(compared: Compared, base: str) -> Markup:
    """One row for each bin: range, number of sentences, BLEU of the base, and the difference of every run."""
    head = [tag("th", words) for words in ("attribute", "bins of", "range")]
    head += [tag("th", words, class_="number") for words in ("sentences", f"BLEU of {base}")]
    head += [tag("th", swatch(style), run.name, class_="number") for run, style, _ in compared]
    rows = []
    for kind in _kinds(compared):
        bins = {_range(row): row for *_, of_run in compared for row in _of(of_run, kind)}
        for ends, row in bins.items():
            cells = [tag("td", text) for text in (*kind, _written(ends))]
            cells += map(number_cell, (str(row["sentences"]), f"{row['base']:.2f}"))
            rows.append([*cells, *[_difference(_of(of_run, kind), ends) for *_, of_run in compared]])
    return table(head, rows)


def _difference(rows: Bins, ends: tuple[float, float]) -> Markup:
    of_bin = next((row for row in rows if _range(row) == ends), None)
    text = (
        MISSING if of_bin is None else f"{of_bin['difference']:+.2f} ({of_bin['lower']:+.2f} to {of_bin['upper']:+.2f})"
    )
    return number_cell(text)
