"""Text for language models."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.preparation.options import Level, Marker, Output, Workers
from structattn.cli.preparation.summary import print_summary


class Mode(StrEnum):
    """How text is split into examples."""

    sentences = "sentences"
    stream = "stream"


def text(
    context: typer.Context,
    *,
    train: Annotated[Path, typer.Option(help="Training text, UTF-8, one sequence per line; .gz is decompressed.")],
    valid: Annotated[Path, typer.Option(help="Validation text.")],
    output: Output,
    test: Annotated[Path | None, typer.Option(help="Test text.")] = None,
    level: Annotated[Level, typer.Option(help="Unit of tokens; the first three need the extra mt.")] = Level.word,
    mode: Annotated[Mode, typer.Option(help="Each line is an example, or all lines form one stream.")] = Mode.sentences,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Drop empty lines instead of refusing them.")
    ] = False,
    min_count: Annotated[
        int,
        typer.Option(min=1, help="Symbols with fewer training occurrences become <unk>; such subwords are split."),
    ] = 1,
    max_symbols: Annotated[
        int | None, typer.Option(min=1, help="Keep only the most frequent symbols in the vocabulary.")
    ] = None,
    vocabulary_size: Annotated[
        int, typer.Option(min=1, help="Number of merges (bpe) or pieces (sentencepiece) to learn.")
    ] = 32_000,
    marker: Annotated[Marker, typer.Option(help="How bpe marks word boundaries.")] = Marker.end,
    unknown_classes: Annotated[
        bool,
        typer.Option(
            "--unknown-classes", help="Words seen once become classes by shape and suffix, such as UNK-LC-ing."
        ),
    ] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Local folder of a Hugging Face tokenizer (tokenizer.json) to apply instead of a level."),
    ] = None,
    block_length: Annotated[
        int | None,
        typer.Option(
            min=1, help="In a stream, cut the end off every 1,000 lines, so that the rest makes whole blocks."
        ),
    ] = None,
    nfkc: Annotated[bool, typer.Option("--nfkc", help="Normalize text to Unicode NFKC.")] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Convert text to lower case.")] = False,
    workers: Workers = None,
) -> None:
    """Validate text, build a vocabulary or learn subwords, and encode the text."""
    from structattn.support.errors import UsageError
    from structattn.support.processes import available_cores
    from structattn.tasks.language_modeling.prepare import prepare_language_modeling
    from structattn.tasks.language_modeling.settings import TextSettings

    given = context.get_parameter_source("vocabulary_size")
    if level in (Level.word, Level.character, Level.byte) and given is not None and given.name != "DEFAULT":
        raise UsageError(f"--vocabulary-size applies to subwords, not to --level {level.value}; see --max-symbols")
    settings = TextSettings(
        level.value if tokenizer is None else "pretrained",
        mode.value,
        skip_empty,
        min_count=min_count,
        max_symbols=max_symbols,
        vocabulary_size=vocabulary_size,
        marker=marker.value,
        unknown_classes=unknown_classes,
        tokenizer=None if tokenizer is None else str(tokenizer),
        block_length=block_length,
        nfkc=nfkc,
        lowercase=lowercase,
    )
    prepare_language_modeling(output, train, valid, test, settings, workers=workers or available_cores())
    print_summary(output)
