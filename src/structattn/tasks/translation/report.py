"""Tables and figures of translations: samples beside their references, and how far heads attend."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from structattn.metrics.translation import import_sacrebleu
from structattn.report.figure import Plot, figure_element, figure_style, file_name, legend_above, new_figure
from structattn.report.page import MISSING, Markup, joined, number_cell, table, tag
from structattn.report.runs import Run
from structattn.report.style import LINE, LineStyle, first_drawn, side_offset
from structattn.report.tables import swatch
from structattn.runs.store import hypotheses_path, read_translations
from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator
from structattn.tasks.trained_data import present_path
from structattn.text.folders.header import read_header
from structattn.text.folders.prepared import PreparedFolder, open_prepared

SHOWN: Final = 10
Shown = Sequence[tuple[Run, LineStyle]]


class _Translated(NamedTuple):
    """A run and its translations of a split."""

    run: Run
    style: LineStyle
    lines: Sequence[str]


def translation_section(runs: Shown, split: str) -> Markup:
    """Return a random sample of a split with the translations of all runs that have some, the worst first.

    The order is that of the mean chrF2 of the runs on a sentence. Empty if no run has translations; a note if the data
    that they were trained on are not there.

    Raises:
        DataError: the data or the translations are damaged.
    """
    given = [(run, style) for run, style in runs if hypotheses_path(run.folder, split).exists()]
    if not given:
        return Markup("")
    prepared = _data_of([run for run, _ in given])
    if isinstance(prepared, str):
        return tag("p", f"Translations are not shown: {prepared}.", class_="note")
    sources, references = (prepared.texts(split, side) for side in ("source", "target"))
    translated = [_Translated(run, style, read_translations(run.folder, split, len(sources))) for run, style in given]
    chosen = numpy_generator(0, "translations", split).permutation(len(sources))[:SHOWN].tolist()
    scores = {index: _chrf([each.lines[index] for each in translated], references[index]) for index in chosen}
    rows = [
        _pair(sources[index], references[index], [(each, each.lines[index]) for each in translated], scores[index])
        for index in sorted(chosen, key=lambda index: float(np.mean(scores[index] or [0])))
    ]
    order = ", the worst first by chrF2" if any(scores.values()) else ""
    note = f"{len(rows)} of {len(sources):,} sentences, drawn at random{order}."
    return joined(tag("h3", f"Translations ({split})"), tag("p", note, class_="note"), *rows)


def _data_of(runs: Sequence[Run]) -> PreparedFolder | str:
    """Return the data of runs on the same data, where one of them has it; else why there is none."""
    reasons = []
    for path in dict.fromkeys(present_path(run.folder, Path(str(run.settings["data"]))) for run in runs):
        if not path.exists():
            reasons.append(f"{path} is not there")
        elif (present := read_header(path)[1]) != (digest := runs[0].data_digest):
            reasons.append(f"{path} has digest {present}, the data of the runs {digest}")
        else:
            return open_prepared(path)
    return "; ".join(reasons)


def _chrf(hypotheses: Sequence[str], reference: str) -> list[float]:
    """Return chrF2 of each translation; nothing without sacrebleu."""
    try:
        metric: Any = import_sacrebleu("sacrebleu.metrics").CHRF()
    except UsageError:
        return []
    return [float(metric.sentence_score(hypothesis, [reference]).score) for hypothesis in hypotheses]


def _pair(
    source: str, reference: str, translations: Sequence[tuple[_Translated, str]], scores: Sequence[float]
) -> Markup:
    parts = [_part("source", source), _part("reference", reference)]
    for place, (each, line) in enumerate(translations):
        score = f" (chrF2 {scores[place]:.1f})" if scores else ""
        parts.append(tag("div", tag("b", swatch(each.style), each.run.name, score), line))
    return tag("div", *parts, class_="pair")


def _part(name: str, text: str) -> Markup:
    return tag("div", tag("b", name), text)


Head = Mapping[str, Any]
Located = Sequence[tuple[Run, LineStyle, Sequence[Head]]]

_KINDS = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}
_MEASURES = {"mean": "mean of argmax − i", "absolute": "mean of |argmax − i|"}
_SPREAD = 0.6  # fraction of the distance between two layers over which heads and runs are spread
_CAPTION = (
    "Offset of the key position with the largest weight from the query position, averaged over all positions of the "
    "{split} pairs under teacher forcing. One dot per head; top: mean offset, bottom: mean absolute offset."
)


def locality_section(runs: Sequence[tuple[Run, LineStyle]], split: str, prefix: str, folder: Path) -> Markup:
    """Return a figure and a table for each run; empty if no run's attention was analysed on the split."""
    located = [(run, style, heads) for run, style in runs if (heads := heads_of(run, split))]
    if not located:
        return Markup("")
    figure = figure_element(locality_plot(first_drawn(located), split, file_name(prefix, split, "locality")), folder)
    return joined(tag("h3", "Locality of attention heads"), figure, *[_table(*each) for each in located])


def heads_of(run: Run, split: str) -> Sequence[Head]:
    """Return the heads of a run whose attention was analysed on the split; empty if it was not."""
    return next((analysis["heads"] for analysis in run.analyses_of_kind("attention") if analysis["split"] == split), ())


def locality_plot(located: Located, split: str, name: str) -> Plot:
    """Plot the mean and the mean absolute offset of each head, by layer."""
    kinds = [kind for kind in _KINDS if any(head["kind"] == kind for *_, heads in located for head in heads)]
    with figure_style(name):
        figure = new_figure(11.4, 5.2)
        grid = figure.subplots(2, len(kinds), squeeze=False, sharex="col", sharey="row")
        for row, (measure, label) in zip(grid, _MEASURES.items(), strict=True):
            row[0].set_ylabel(label)
            for axes, kind in zip(row, kinds, strict=True):
                _draw(axes, located, kind, measure)
        for axes, kind in zip(grid[0], kinds, strict=True):
            axes.set_title(_KINDS[kind])
        for axes in grid[1]:
            axes.set_xlabel("layer")
        handles = [Line2D([], [], color=style.color, marker=style.marker, linestyle="") for _, style, _ in located]
        legend_above(figure, handles, [run.name for run, *_ in located])
    return Plot(name, figure, _CAPTION.format(split=split))


def _draw(axes: Axes, located: Located, kind: str, measure: str) -> None:
    axes.axhline(0, color=LINE, linewidth=1.0, zorder=0.5)
    layers = set[int]()
    for number, (_, style, heads) in enumerate(located):
        shown = [head for head in heads if head["kind"] == kind]
        layers |= {head["layer"] for head in shown}
        aside = side_offset(number, len(located), _SPREAD)
        width = 0.8 * _SPREAD / len(located)
        most = max((head["head"] for head in shown), default=0) or 1
        where = [head["layer"] + 1 + aside + width * (head["head"] / most - 0.5) for head in shown]
        axes.plot(where, [head[measure] for head in shown], color=style.color, marker=style.marker, linestyle="")
    axes.set_xticks([layer + 1 for layer in sorted(layers)])
    axes.margins(x=0.08, y=0.1)


def _table(run: Run, style: LineStyle, heads: Sequence[Head]) -> Markup:
    """One row for each layer, one column for each head: mean offset and mean absolute offset."""
    cells = {(head["kind"], head["layer"], head["head"]): head for head in heads}
    columns = range(1 + max(head["head"] for head in heads))
    rows = dict.fromkeys((head["kind"], head["layer"], head["mechanism"]) for head in heads)
    head = [tag("th", "layer"), *[tag("th", f"head {n + 1}", class_="number") for n in columns]]
    body = [
        [tag("th", f"{_KINDS[kind]}, {layer + 1}: {mechanism}", scope="row")]
        + [number_cell(_written(cells.get((kind, layer, column)))) for column in columns]
        for kind, layer, mechanism in rows
    ]
    summary = tag("summary", swatch(style), f"{run.name}: mean offset (mean absolute offset) of every head")
    return tag("details", summary, table(head, body))


def _written(head: Head | None) -> str:
    return MISSING if head is None else f"{head['mean']:+.2f} ({head['absolute']:.2f})"
