"""Heat maps of the records of one run, grouped by example."""

from collections.abc import Sequence
from pathlib import Path

from structattn.explorer.heatmaps import attention_plot, stack_plot
from structattn.explorer.receptive_field_figures import FIELD, receptive_field_plot
from structattn.explorer.recorded_runs import RecordedRun
from structattn.explorer.recording import RecordedExample
from structattn.loading.records import Record
from structattn.report.figures.figure import figure_element, file_name
from structattn.report.figures.palette import LineStyle
from structattn.report.labels import visible
from structattn.report.markup import Markup, joined, tag
from structattn.report.tables import swatch
from structattn.settings.mechanisms import MECHANISMS

_WITHIN_PAIRS = {
    "encoder": "within the source",
    "decoder": "within the target (teacher forcing)",
    "cross": "from the target (teacher forcing) to the source",
}
_AXES = "Horizontal: query position; vertical: key position, downwards."


def _caption(mechanism: str) -> str:
    entry = MECHANISMS.get(mechanism)
    return entry.caption if entry is not None and entry.caption else mechanism


def _stack_figure(run: RecordedRun, record: Record, prefix: str, folder: Path) -> Markup:
    layer, side = record.layer, record.side or ""
    place = f"{side} layer {layer + 1}".lstrip()
    caption = f"{run.name}, {place}. {_caption(record.mechanism)}"
    name = file_name(prefix, side, f"layer-{layer + 1}" + ("-stack" if record.sublayer == "stack" else ""))
    return figure_element(stack_plot(record, name, caption), folder)


def _field_figure(run: RecordedRun, record: Record, prefix: str, folder: Path) -> Markup:
    caption = f"{run.name}: the inputs (columns) that each prediction (rows) depends on through all layers."
    return figure_element(
        receptive_field_plot([("", record.weights, record.sources)], record.tokens, file_name(prefix, FIELD), caption),
        folder,
    )


def _pair_field_figure(run: RecordedRun, fields: Sequence[Record], prefix: str, folder: Path) -> Markup:
    titles = {"receptive-field": "target", "source-receptive-field": "source"}
    matrices = [(titles[record.sublayer], record.weights, record.sources) for record in fields]
    caption = (
        f"{run.name}: the target and source inputs (columns) that each prediction of a token (rows) depends on through "
        "all layers, under teacher forcing."
    )
    plot = receptive_field_plot(matrices, fields[0].tokens, file_name(prefix, FIELD), caption)
    return figure_element(plot, folder)


def _pair_figures(run: RecordedRun, records: list[Record], prefix: str, folder: Path) -> list[Markup]:
    """Return the maps of one pair: encoder self-attention, decoder self-attention, and cross-attention."""
    parts = []
    for place, meaning in _WITHIN_PAIRS.items():
        shown = [record for record in records if _place(record) == place]
        if shown:
            names = " and ".join(sorted({record.mechanism for record in shown}))
            caption = f"{run.name}, {names} attention {meaning}. {_AXES}"
            figure = attention_plot(shown, file_name(prefix, place), caption, labelled=True)
            heading = tag("summary", f"{place}: {names} layers")
            parts.append(tag("details", heading, figure_element(figure, folder), class_="softmax"))
    return parts


def _place(record: Record) -> str:
    return "cross" if record.sublayer == "cross" else str(record.side)


def _text(tokens: Sequence[str]) -> Markup:
    return tag("p", " ".join(visible(token, longest=40) for token in tokens), class_="tokens")


def _one_pair(run: RecordedRun, example: RecordedExample, prefix: str, folder: Path) -> Markup:
    records = example.records
    figures = [_stack_figure(run, record, prefix, folder) for record in records if record.actions is not None]
    fields = [record for record in records if record.mechanism == FIELD]
    if fields:
        figures.append(_pair_field_figure(run, fields, prefix, folder))
    shown = [_text(example.source or ()), _text(example.tokens)]
    return joined(*shown, *figures, *_pair_figures(run, _with_heads(records), prefix, folder))


def _with_heads(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.actions is None and record.mechanism != FIELD]


def _one_example(run: RecordedRun, example: RecordedExample, prefix: str, folder: Path) -> Markup:
    records = example.records
    if example.source is not None:
        return _one_pair(run, example, prefix, folder)
    stacks = [record for record in records if record.actions is not None]
    parts = [_stack_figure(run, record, prefix, folder) for record in stacks]
    parts += [_field_figure(run, record, prefix, folder) for record in records if record.mechanism == FIELD]
    with_heads = _with_heads(records)
    if with_heads:
        names = " and ".join(sorted({record.mechanism for record in with_heads}))
        caption = f"{run.name}, {names} attention. {_AXES}"
        figure = figure_element(attention_plot(with_heads, file_name(prefix, "softmax"), caption), folder)
        parts.append(tag("details", tag("summary", f"{names} layers"), figure, class_="softmax"))
    return joined(_text(example.tokens), *parts)


def explanations(run: RecordedRun, style: LineStyle, prefix: str, folder: Path) -> Markup:
    """Return all heat maps of a run and write their PNG and PDF files; empty if the run has no records."""
    if not run.examples:
        return Markup("")
    parts = [
        _one_example(run, example, f"{prefix}-example-{index}", folder)
        for index, example in enumerate(run.examples, start=1)
    ]
    return tag("section", tag("h3", swatch(style), run.name), *parts)
