"""``structattn syntax``: targeted syntactic evaluation of language models."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structattn.cli.options import Checkpoint, Json
from structattn.cli.output import literal, print_json, print_table

if TYPE_CHECKING:
    from rich.table import Table


class Suite(StrEnum):
    """A test suite."""

    blimp = "blimp"


class Marks(StrEnum):
    """How a corpus writes punctuation marks and contractions."""

    auto = "auto"
    attached = "attached"
    separate = "separate"


def syntax(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of language models.")],
    *,
    suite: Annotated[Suite, typer.Option(help="Test suite: blimp, 67 paradigms of minimal pairs.")] = Suite.blimp,
    data: Annotated[Path, typer.Option(help="BLiMP's file *.jsonl or *.jsonl.gz, or a folder of them.")],
    checkpoint: Checkpoint = None,
    marks: Annotated[
        Marks,
        typer.Option(
            help="Punctuation marks and contractions attached to words, or separate words as in WikiText; auto: as "
            "most full stops of the training data are."
        ),
    ] = Marks.auto,
    json: Json = False,
    prepared: Annotated[Path | None, typer.Option(help="The prepared folder, if it was moved.")] = None,
) -> None:
    """Score minimal pairs: how often is the acceptable sentence more likely than the unacceptable one?

    Sentences are encoded by the tokenizer of the run, in lower case if its vocabulary has no upper-case letter. The
    results are stored in the run folders and appear in reports.
    """
    from structattn.loading.runs import open_run
    from structattn.tasks.minimal_pairs.data import read_minimal_pairs
    from structattn.tasks.minimal_pairs.evaluate import blimp_scores, write_blimp
    from structattn.tasks.minimal_pairs.sentences import SentenceScorer, WrittenForm
    from structattn.text.reading import Notices

    pairs = read_minimal_pairs(data, Notices())
    separate = None if marks is Marks.auto else marks is Marks.separate
    results = []
    for folder in runs:
        run = open_run(folder, checkpoint, data=prepared)
        form = WrittenForm.of_corpus(run.prepared.beginning(), run.prepared.vocabulary.symbols, separate)
        scorer = SentenceScorer(run, form)
        scores = blimp_scores(scorer, pairs)
        write_blimp(scorer, scores)
        results.append(asdict(scores))
    if json:
        print_json([{"run": run, "scores": scores} for run, scores in zip(runs, results, strict=True)])
    else:
        _print(runs, results)


def _print(folders: Sequence[Path], results: Sequence[Mapping[str, Any]]) -> None:
    """Print the groups of paradigms beside published accuracies, then the paradigms."""
    from structattn.tasks.minimal_pairs.published import PUBLISHED, paradigm_rows, summary_rows

    groups = _table(folders, "group", "Published: Warstadt et al. (2020), table 3, corrected.")
    for system in PUBLISHED:
        groups.add_column(system, justify="right")
    for row in summary_rows(results):
        published = [f"{row.published[system]:.1f}" if system in row.published else "" for system in PUBLISHED]
        groups.add_row(literal(row.name), *map(_whole, row.runs), *published)
    paradigms = _table(folders, "paradigm", _CAPTION)
    for phenomenon, rows in paradigm_rows(results).items():
        paradigms.add_row(literal(phenomenon), style="bold")
        for row in rows:
            paradigms.add_row(literal(f"  {row.name}"), *map(_cell, row.runs))
    print_table(groups)
    print_table(paradigms)


_CAPTION = (
    "Accuracy in percent with 95 % interval: the acceptable sentence is strictly more likely. In brackets: share of "
    "the pairs without <unk>, and accuracy on them, where some have <unk>. One prefix, two prefixes: accuracy of words "
    "given prefixes."
)


def _table(folders: Sequence[Path], heading: str, caption: str) -> "Table":
    from rich.table import Table

    table = Table(caption=caption, caption_justify="left", padding=(0, 0))
    table.add_column(heading, overflow="fold")
    for folder in folders:
        table.add_column(literal(folder.name), justify="right")
    return table


def _cell(accuracy: Mapping[str, Any] | None) -> str:
    if accuracy is None:
        return ""
    others = [f"{name}: {100 * accuracy[key]['value']:.1f}" for key, name in _METHODS.items() if accuracy[key]]
    return "\n".join([_whole(accuracy), *others])


def _whole(accuracy: Mapping[str, Any] | None) -> str:
    """Return the accuracy on whole sentences, and that on pairs without unknown words if it differs."""
    from structattn.tasks.minimal_pairs.published import known_share

    if accuracy is None:
        return ""
    whole, known = accuracy["sentence"], accuracy["known"]
    lines = [f"{100 * whole['value']:.1f} ({100 * whole['lower']:.1f} to {100 * whole['upper']:.1f})"]
    if known_share(accuracy) < 1:
        lines.append(f"[{100 * known_share(accuracy):.0f} %: {100 * known['value']:.1f}]" if known else "[0 %]")
    return "\n".join(lines)


_METHODS = {"one_prefix": "one prefix", "two_prefix": "two prefixes"}
