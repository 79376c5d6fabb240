"""``structattn neighbours``: nearest words by their input embeddings, plots and export of these."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structattn.cli.options import Checkpoint, Json, PreparedData
from structattn.cli.output import literal, print_json, print_line, print_table

if TYPE_CHECKING:
    from structattn.explorer.word_embeddings import Neighbour
    from structattn.loading.word_vectors import WordVectors
    from structattn.metrics.neighbours import Agreement


class Side(StrEnum):
    """The side of a translation run."""

    source = "source"
    target = "target"


class Stream(StrEnum):
    """The stream of a two-stream model."""

    syntactic = "syntactic"
    semantic = "semantic"


def neighbours(
    run: Annotated[Path, typer.Argument(help="Run folder of a translation run or a language model.")],
    words: Annotated[list[str] | None, typer.Argument(help="Words whose neighbours to print.")] = None,
    side: Annotated[Side | None, typer.Option(help="Embeddings of a translation run.  \\[default: source]")] = None,
    stream: Annotated[Stream | None, typer.Option(help="Stream of a two-stream model.  \\[default: both]")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of neighbours of a word.")] = 10,
    max_words: Annotated[int, typer.Option(min=2, help="Number of most frequent words that are compared.")] = 10_000,
    tags: Annotated[
        Path | None,
        typer.Option(
            help="File in the format of CoNLL-2000: print how often ten neighbours have the part of speech of a word."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a t-SNE plot (.png, .svg or .pdf); needs the extra embeddings."),
    ] = None,
    export: Annotated[Path | None, typer.Option(help="Write the embeddings in the text format of word2vec.")] = None,
    json: Json = False,
    checkpoint: Checkpoint = None,
    data: PreparedData = None,
) -> None:
    """Print the nearest words by cosine similarity of input embeddings, in each stream of a model.

    The most frequent words of the training text that are one token are compared.
    """
    from structattn.explorer.word_embeddings import (
        neighbours_of,
        read_word_tags,
        t_sne,
        tag_agreement,
        write_agreement,
        write_word2vec,
    )
    from structattn.loading.runs import open_run
    from structattn.loading.word_vectors import word_vectors
    from structattn.report.embeddings import require_format, write_embedding_plot
    from structattn.support.errors import UsageError

    if not (words or tags or plot or export):
        raise UsageError("nothing to do; expected words, --tags, --plot or --export")
    if plot is not None:
        require_format(plot)
    opened = open_run(run, checkpoint, data=data)
    vectors = _chosen(word_vectors(opened, None if side is None else side.value, max_words, words or ()), stream)
    tag_of = {} if tags is None else read_word_tags(tags)
    nearest, agreement = {word: neighbours_of(vectors, word, count) for word in words or ()}, None
    if tags is not None:
        agreement = tag_agreement(vectors, tag_of)
        write_agreement(opened, (side or Side.source).value, agreement)
    if json:
        print_json({"neighbours": _by_stream(nearest), "agreement": agreement and _by_stream({"": agreement})[""]})
    else:
        for word, found in nearest.items():
            _print_neighbours(word, found)
        _print_agreement(agreement or {})
    if plot is not None:
        points = {name: t_sne(table, opened.settings.seed) for name, table in vectors.streams.items()}
        write_embedding_plot(plot, points, [tag_of.get(word) for word in vectors.words])
        print_line(str(plot), error=json)
    if export is not None:
        if len(vectors.streams) > 1:
            raise UsageError("--export writes one table; expected --stream syntactic or --stream semantic")
        write_word2vec(export, vectors.words, *vectors.streams.values())
        print_line(str(export), error=json)


def _chosen(vectors: "WordVectors", stream: Stream | None) -> "WordVectors":
    from dataclasses import replace

    from structattn.support.errors import UsageError

    if stream is None:
        return vectors
    if stream.value not in vectors.streams:
        raise UsageError(f"--stream {stream.value} is for two-stream models; this one has a single stream")
    return replace(vectors, streams={stream.value: vectors.streams[stream.value]})


def _by_stream(found: "Mapping[str, Mapping[str | None, Any]]") -> dict[str, Any]:
    """Return the same with the streams named; what has a single stream loses that level."""
    return {
        name: streams[None] if None in streams else {str(stream): each for stream, each in streams.items()}
        for name, streams in found.items()
    }


def _print_neighbours(word: str, found: "Mapping[str | None, Sequence[Neighbour]]") -> None:
    from rich.table import Table

    table = Table(title=literal(word), title_justify="left")
    for stream in found:
        table.add_column(stream or "word", overflow="fold")
        table.add_column("cosine", justify="right")
    for row in zip(*found.values(), strict=True):
        table.add_row(*[cell for each in row for cell in (literal(each.word), f"{each.similarity:.3f}")])
    print_table(table)


def _print_agreement(agreement: "dict[str | None, Agreement]") -> None:
    for stream, each in agreement.items():
        name = "" if stream is None else f"{stream} stream: "
        print_line(
            f"{name}{each.value:.1%} of the ten nearest neighbours of {each.count:,} words have the part of speech of "
            f"the word (at random: {each.chance:.1%})"
        )
