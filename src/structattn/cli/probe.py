"""``structattn probe``: what a linear layer finds in the hidden states of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import Checkpoint, Json, PreparedData
from structattn.cli.output import literal, print_json, print_table

if TYPE_CHECKING:
    from structattn.tasks.chunking.evaluate import StreamScores
    from structattn.tasks.chunking.metrics import TaggingScores


def probe(
    chunks: Annotated[
        Path, typer.Argument(help="Folder with train.txt and test.txt of CoNLL-2000: word, part of speech, chunk tag.")
    ],
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    checkpoint: Checkpoint = None,
    json: Json = False,
    data: PreparedData = None,
) -> None:
    """Train one linear layer to find chunks in the frozen top layer of each run, and score it as conlleval does.

    Each word has the hidden state of its first subword; two streams are probed separately. The results are stored in
    the run folders and appear in reports.
    """
    from structattn.loading.runs import open_run
    from structattn.tasks.chunking.evaluate import (
        majority_scores,
        probe_chunking,
        read_chunked_corpus,
        write_chunking,
    )
    from structattn.text.reading import Notices

    corpus = read_chunked_corpus(chunks, Notices())
    results = []
    for folder in runs:
        run = open_run(folder, checkpoint, data=data)
        found = probe_chunking(run, corpus)
        write_chunking(run, corpus, found)
        results.append((folder, found))
    if json:
        streams = [{"run": folder, "streams": found} for folder, found in results]
        print_json({"most_frequent_tag": majority_scores(corpus), "runs": streams})
    else:
        _print(majority_scores(corpus), results)


def _print(baseline: "TaggingScores", results: "Sequence[tuple[Path, Sequence[StreamScores]]]") -> None:
    """Print one row for each stream of each run."""
    from rich.table import Table

    table = Table(caption="chunks of the test sentences, in percent", caption_justify="left")
    table.add_column("run", overflow="fold")
    table.add_column("stream")
    for heading in ("accuracy", "precision", "recall", "F1"):
        table.add_column(heading, justify="right")
    table.add_row("most frequent chunk tag of each part of speech", "", *_cells(baseline))
    for folder, streams in results:
        for each in streams:
            table.add_row(literal(folder.name), each.stream or "", *_cells(each.scores))
    print_table(table)


def _cells(scores: "TaggingScores") -> list[str]:
    chunks = scores.overall
    return [f"{100 * value:.2f}" for value in (scores.accuracy, chunks.precision, chunks.recall, chunks.f1)]
