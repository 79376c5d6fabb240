"""Print scores as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from structattn.cli.output import literal, numbers_table, print_table
from structattn.report.page import MISSING, nats, percent, points
from structattn.report.runs import shortest_names
from structattn.report.tables import Column
from structattn.tasks.recognition import report as recognition_report
from structattn.tasks.recognition.report import Recognition, bands
from structattn.tasks.scores import SplitScores
from structattn.tasks.transformations.report import CAPTION, TransformationRows, cells, headings

_UNKNOWN_WORD_METHODS = {"keep": "<unk> kept", "copy": "source words copied"}


def _long(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.4f}"


_COLUMNS = (
    Column("cross-entropy", ("cross_entropy",), nats),
    Column("bound", ("lower_bound",), nats),
    Column("difference", ("cross_entropy_difference",), nats),
    Column("perplexity", ("perplexity",), _long),
    Column("per word", ("text", "perplexity_per_word"), _long),
    Column("bits/character", ("text", "bits_per_character"), nats),
    Column("<unk>", ("text", "unknown_share"), percent),
    Column("pseudo-perplexity", ("pseudo", "perplexity"), _long),
    Column("accuracy", ("accuracy",), percent),
    Column("greedy accuracy", ("accuracy_greedy",), percent),
    Column("precision", ("dependencies", "precision"), nats),
    Column("recall", ("dependencies", "recall"), nats),
    *(Column(name, ("translation", name, "value"), points) for name in ("BLEU", "chrF2", "TER")),
)


def _caption(results: Sequence[SplitScores]) -> str:
    accuracies = [scores.accuracy for scores in results]
    tokens = "token" if None not in accuracies else "token, <eos> included"
    parts = [f"cross-entropy in nats per {'string' if all(scores.recognition for scores in results) else tokens}"]
    parts += _bound_explained(results)
    if any(scores.accuracy_greedy is not None for scores in results):
        parts.append("accuracy given the right symbols before, greedy accuracy given the model's own")
    if seeds := sorted({scores.mask_seed for scores in results if scores.mask_seed is not None}):
        parts.append(f"of masked models, per masked token, masks of seed {', '.join(map(str, seeds))}")
    if counts := sorted({scores.pseudo.num_sequences for scores in results if scores.pseudo is not None}):
        parts.append(f"pseudo-perplexity on {' or '.join(map(str, counts))} texts")
    return "; ".join(parts)


def _bound_explained(results: Sequence[SplitScores]) -> list[str]:
    """Return what the bounds are of: of strings with their lengths, or given the length."""
    numbers = {scores.split: scores.lower_bound_num_lengths for scores in results}
    given = [f'"{split}"' for split, number in numbers.items() if number == 1]
    parts = []
    if any(number is not None and number > 1 for number in numbers.values()):
        parts.append("the bound includes log L nats per string for its length, one of L")
    if given:
        parts.append(f"the bound of {' and '.join(given)} is given the length, which the model predicts")
    return parts


def print_scores(results: Sequence[tuple[Path, SplitScores]]) -> None:
    """Print one row for each run and split; columns without values are left out."""
    rows: list[tuple[str, str, dict[str, Any]]] = []
    transformations: dict[str, TransformationRows] = {}
    recognitions: dict[str, Recognition] = {}
    for name, (_, scores) in zip(shortest_names([folder for folder, _ in results]), results, strict=True):
        content = asdict(scores)
        rows.append((name, scores.split, content))
        for way, metrics in (scores.translation_alternatives or {}).items():
            alternative = {"translation": {metric: asdict(each) for metric, each in metrics.items()}}
            rows.append((name, f"{scores.split}, {_UNKNOWN_WORD_METHODS[way]}", alternative))
        if content["transformation"]:
            transformations[f"{name}, {scores.split}"] = content["transformation"]
        if content["recognition"]:
            recognitions[f"{name}, {scores.split}"] = content["recognition"]
    columns = [column for column in _COLUMNS if any(column.of(content) is not None for *_, content in rows)]
    caption = _caption([scores for _, scores in results])
    table = numbers_table(["run", "split"], [column.heading for column in columns], caption)
    for name, split, content in rows:
        table.add_row(literal(name), split, *(column.written(column.of(content)) for column in columns))
    print_table(table)
    if transformations:
        print_table(_transformation_table(transformations))
    for name, each in recognitions.items():
        print_table(_recognition_table(name, each))


def _recognition_table(name: str, scores: Recognition) -> Table:
    """Return one row for each kind of string and each rule, and one column for each band of lengths."""
    columns = bands([scores])
    table = numbers_table([name], columns, recognition_report.CAPTION, padding=0)
    for group, cells_of_group in recognition_report.rows(scores, columns):
        table.add_row(group, *map(literal, cells_of_group))
    return table


def _transformation_table(scored: Mapping[str, TransformationRows]) -> Table:
    """Return one section for each run and split, with one row for each modifier of the subject."""
    every = {f"{name} {group}": scores for name, rows in scored.items() for group, scores in rows.items()}
    table = numbers_table(["subject"], headings(every), CAPTION, padding=0)
    for name, rows in scored.items():
        table.add_row(literal(name), style="bold")
        for group, scores in rows.items():
            table.add_row(f"  {group}", *map(literal, cells(every, scores)), end_section=group == [*rows][-1])
    return table
