"""Print scores as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from structattn.cli.output import literal, print_table
from structattn.metrics.translation import MetricScore
from structattn.tasks.scores import SplitScores
from structattn.tasks.transformations.report import CAPTION, TransformationRows, cells, headings

_UNKNOWN_WORD_METHODS = {"keep": "<unk> kept", "copy": "source words copied"}


def _nats(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"


def _optional(value: float | None, form: str) -> str:
    return "—" if value is None else form.format(value)


def _metrics(found: Mapping[str, MetricScore], names: Sequence[str]) -> list[str]:
    return [f"{found[name].value:.2f}" if name in found else "—" for name in names]


def _caption(results: Sequence[tuple[Path, SplitScores]]) -> str:
    parts = ["cross-entropy in nats per token, <eos> included"]
    if any(scores.mask_seed is not None for _, scores in results):
        seeds = sorted({scores.mask_seed for _, scores in results if scores.mask_seed is not None})
        parts.append(f"of masked models, per masked token, masks of seed {', '.join(map(str, seeds))}")
    if counts := sorted({scores.pseudo.num_sequences for _, scores in results if scores.pseudo is not None}):
        parts.append(f"pseudo-perplexity on {' or '.join(map(str, counts))} texts")
    return "; ".join(parts)


def print_scores(results: Sequence[tuple[Path, SplitScores]]) -> None:
    """Print one row for each run and split; columns without values are left out."""
    with_bound = any(scores.lower_bound is not None for _, scores in results)
    metrics = list(dict.fromkeys(name for _, scores in results for name in scores.translation or {}))
    with_dependencies = any(scores.dependencies is not None for _, scores in results)
    with_accuracy = any(scores.accuracy is not None for _, scores in results)
    with_pseudo = any(scores.pseudo is not None for _, scores in results)
    with_words = any(scores.text is not None and scores.text.perplexity_per_word for _, scores in results)
    with_text = any(scores.text is not None for _, scores in results)
    table = Table(caption=_caption(results), caption_justify="left")
    table.add_column("run", overflow="fold")
    table.add_column("split")
    for heading in (
        "cross-entropy",
        *(("bound", "difference") if with_bound else ()),
        "perplexity",
        *(("per word",) if with_words else ()),
        *(("bits/character", "<unk>") if with_text else ()),
        *(("pseudo-perplexity",) if with_pseudo else ()),
        *(("accuracy",) if with_accuracy else ()),
        *(("precision", "recall") if with_dependencies else ()),
        *metrics,
    ):
        table.add_column(heading, justify="right")
    folders = {folder for folder, _ in results}
    short = len({folder.name for folder in folders}) == len(folders)
    for folder, scores in results:
        cells = [_nats(scores.cross_entropy)]
        if with_bound:
            cells += [_nats(scores.lower_bound), _nats(scores.cross_entropy_difference)]
        cells.append(f"{scores.perplexity:,.4f}")
        text = scores.text
        if with_words:
            cells.append(_optional(None if text is None else text.perplexity_per_word, "{:,.4f}"))
        if with_text:
            cells.append(_optional(None if text is None else text.bits_per_character, "{:.4f}"))
            cells.append(_optional(None if text is None else text.unknown_share, "{:.2%}"))
        if with_pseudo:
            cells.append("—" if scores.pseudo is None else f"{scores.pseudo.perplexity:,.4f}")
        if with_accuracy:
            cells.append("—" if scores.accuracy is None else f"{scores.accuracy:.2%}")
        if with_dependencies:
            dependencies = scores.dependencies
            cells += (
                ["—", "—"] if dependencies is None else [f"{dependencies.precision:.4f}", f"{dependencies.recall:.4f}"]
            )
        name = folder.name if short else str(folder)
        table.add_row(literal(name), scores.split, *cells, *_metrics(scores.translation or {}, metrics))
        for way, found in (scores.translation_alternatives or {}).items():
            table.add_row(
                literal(name),
                f"{scores.split}, {_UNKNOWN_WORD_METHODS[way]}",
                *["—"] * len(cells),
                *_metrics(found, metrics),
            )
    print_table(table)
    transformations = {
        f"{folder.name if short else folder}, {scores.split}": asdict(scores)["transformation"]
        for folder, scores in results
        if scores.transformation
    }
    if transformations:
        print_table(_transformation_table(transformations))


def _transformation_table(scored: Mapping[str, TransformationRows]) -> Table:
    """Return one section for each run and split, with one row for each modifier of the subject."""
    every = {f"{name} {group}": scores for name, rows in scored.items() for group, scores in rows.items()}
    table = Table(caption=CAPTION, caption_justify="left", padding=(0, 0))
    table.add_column("subject")
    for heading in headings(every):
        table.add_column(heading, justify="right")
    for name, rows in scored.items():
        table.add_row(literal(name), style="bold")
        for group, scores in rows.items():
            table.add_row(f"  {group}", *map(literal, cells(every, scores)), end_section=group == [*rows][-1])
    return table
