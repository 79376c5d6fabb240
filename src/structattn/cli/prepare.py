"""``structattn prepare``: a formal language, a transduction, or text, to a prepared folder."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Make a prepared folder from a formal language, a transduction, or text.")

Output = Annotated[Path, typer.Option("--output", "-o", help="The prepared folder to make.")]


class Reading(StrEnum):
    """The two readings of a grammar."""

    faithful = "faithful"
    reference = "reference"


class Level(StrEnum):
    """What a symbol is."""

    word = "word"
    character = "character"
    byte = "byte"


class Mode(StrEnum):
    """What an example is."""

    sentences = "sentences"
    stream = "stream"


@app.command("formal-language")
def formal_language(
    name: Annotated[str, typer.Argument(help="The language; `structattn list` shows them.")],
    *,
    output: Output,
    reading: Annotated[
        Reading, typer.Option(help="The grammar as stated, or as transformed by the code behind published numbers.")
    ] = Reading.faithful,
    seed: Annotated[int, typer.Option(min=0, help="Of the training and validation strings.")] = 1,
    train: Annotated[int, typer.Option(min=1, help="Training strings.")] = 10_000,
    valid: Annotated[int, typer.Option(min=1, help="Validation strings.")] = 1_000,
    test_per_length: Annotated[int, typer.Option(min=1, help="Test strings of each length.")] = 100,
    train_lengths: Annotated[tuple[int, int], typer.Option(help="Least and greatest length, two numbers.")] = (40, 80),
    test_lengths: Annotated[tuple[int, int], typer.Option(help="Least and greatest length, two numbers.")] = (40, 100),
) -> None:
    """Draw strings of a formal language, with their exact probabilities."""
    from structattn.data.formal_languages import FormalLanguageSizes, prepare_formal_language

    sizes = FormalLanguageSizes(train, valid, test_per_length, train_lengths, test_lengths)
    prepare_formal_language(output, name, reading.value, seed=seed, sizes=sizes)
    tell(output)


@app.command("transduction")
def transduction(
    name: Annotated[str, typer.Argument(help="The transduction; `structattn list` shows them.")],
    *,
    output: Output,
    seed: Annotated[int, typer.Option(min=0, help="Of the validation pairs.")] = 1,
    train_lengths: Annotated[tuple[int, int], typer.Option(help="Least and greatest length, two numbers.")] = (1, 40),
    test_lengths: Annotated[tuple[int, int], typer.Option(help="Least and greatest length, two numbers.")] = (41, 100),
    valid_per_length: Annotated[int, typer.Option(min=1, help="Validation pairs of each length.")] = 16,
    test_per_length: Annotated[int, typer.Option(min=1, help="Test pairs of each length.")] = 512,
) -> None:
    """Draw pairs of strings to validate and test with; training pairs are made on the fly."""
    from structattn.data.transductions.prepare import TransductionSizes, prepare_transduction

    sizes = TransductionSizes(train_lengths, test_lengths, valid_per_length, test_per_length)
    prepare_transduction(output, name, seed=seed, sizes=sizes)
    tell(output)


@app.command("text")
def text(
    *,
    train: Annotated[Path, typer.Option(help="Training text, UTF-8, one sequence a line; .gz is decompressed.")],
    valid: Annotated[Path, typer.Option(help="Validation text.")],
    output: Output,
    test: Annotated[Path | None, typer.Option(help="Test text.")] = None,
    level: Annotated[Level, typer.Option(help="What a symbol is.")] = Level.word,
    mode: Annotated[Mode, typer.Option(help="Each line an example, or all lines one stream.")] = Mode.sentences,
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Drop empty lines, refused otherwise.")] = False,
    min_count: Annotated[int, typer.Option(min=1, help="Rarer training symbols become <unk>.")] = 1,
    max_symbols: Annotated[int | None, typer.Option(min=1, help="Number only the commonest symbols.")] = None,
) -> None:
    """Check text strictly and number its symbols."""
    from structattn.data.prepare_text import prepare_language_modeling

    prepare_language_modeling(
        output,
        train,
        valid,
        test,
        level=level.value,
        mode=mode.value,
        skip_empty=skip_empty,
        min_count=min_count,
        max_symbols=max_symbols,
    )
    tell(output)


def tell(folder: Path) -> None:
    """Print what a prepared folder holds."""
    from rich.console import Console
    from rich.markup import escape

    from structattn.data.prepared import open_prepared

    prepared = open_prepared(folder)
    splits = ", ".join(
        f"{name} {counts.sequences:,} sequences of {counts.tokens:,} tokens"
        for name, counts in prepared.header.splits.items()
    )
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(str(folder))}[/]: {prepared.kind}, {prepared.vocabulary.size} symbols; {splits}")
