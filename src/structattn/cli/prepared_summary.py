"""What the commands of ``structattn prepare`` share: options, and what they print of the folder that they wrote."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.support.environment import escape_control_characters, printable
from structattn.support.reading import MAX_INTEGER

if TYPE_CHECKING:
    from structattn.text.folders.prepared import PreparedFolder

Output = Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the prepared data.")]
Seed = Annotated[int, typer.Option(min=0, max=MAX_INTEGER, metavar="N", help="Random seed of what is drawn.")]


def print_summary(folder: Path) -> None:
    """Print the contents of a prepared folder."""
    from rich.console import Console
    from rich.text import Text

    from structattn.text.folders.prepared import open_prepared

    prepared = open_prepared(folder)
    parallel = prepared.parallel_sides is not None
    splits = ", ".join(_pairs(prepared, name) if parallel else _text(prepared, name) for name in prepared.splits)
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text.assemble((printable(str(folder)), "bold"), f": {prepared.kind}, {_symbols(prepared)}; {splits}"))


def print_language(folder: Path) -> None:
    """Print what the header of a prepared folder says of a language from a file."""
    from structattn.tasks.formal_languages.summary import SUMMARY
    from structattn.text.folders.header import read_header

    for heading, sentence in read_header(folder)[0].extra.get(SUMMARY, {}).items():
        typer.echo(f"  {heading:13}  {escape_control_characters(sentence)}")


def _text(prepared: "PreparedFolder", name: str) -> str:
    from structattn.text.folders.text_statistics import text_statistics, unknown_share

    counts, share = prepared.header.splits[name], unknown_share(prepared, name)
    statistics = text_statistics(prepared, name)
    parts = [f"{name} {counts.sequences:,} sequences of {counts.tokens:,} tokens"]
    if statistics is not None:
        cut, skipped = f"{statistics.tokens_cut:,} tokens cut off", f"{statistics.lines_skipped:,} empty lines skipped"
        parts += [cut] * bool(statistics.tokens_cut) + [skipped] * bool(statistics.lines_skipped)
    if share is not None:
        parts.append(f"{share:.2%} <unk>")
    return " (".join((parts[0], ", ".join(parts[1:]) + ")")) if parts[1:] else parts[0]


def _pairs(prepared: "PreparedFolder", name: str) -> str:
    pairs = prepared.pairs(name)
    tokens = f"{pairs.source.num_tokens:,} and {pairs.target.num_tokens:,} tokens"
    return f"{name} {len(pairs):,} pairs of {tokens}"


def _symbols(prepared: "PreparedFolder") -> str:
    sides = prepared.parallel_sides
    if sides is None or sides.joint:
        return f"{prepared.vocabulary.size} symbols"
    return f"{sides.source.vocabulary.size} source and {sides.target.vocabulary.size} target symbols"
