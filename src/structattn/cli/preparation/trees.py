"""Constituency trees for parsers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.preparation.options import Level, Output
from structattn.cli.preparation.summary import print_summary


class TreeTags(StrEnum):
    """What stands for a word in a linearized tree."""

    normalized = "normalized"
    kept = "kept"


def trees(
    *,
    output: Output,
    train: Annotated[Path, typer.Option(help="Training trees, bracketed: (S (NP (DT the) ...) ...).")],
    valid: Annotated[Path, typer.Option(help="Validation trees.")],
    test: Annotated[Path | None, typer.Option(help="Test trees.")] = None,
    tags: Annotated[
        TreeTags, typer.Option(help="Linearized trees have XX for each word (normalized), or its tag (kept).")
    ] = TreeTags.normalized,
    level: Annotated[Level, typer.Option(help="Unit of tokens of the sentences.")] = Level.word,
    vocabulary_size: Annotated[
        int, typer.Option(min=0, help="Number of merges (bpe) or pieces (sentencepiece) to learn.")
    ] = 8_000,
    vocabulary_threshold: Annotated[
        int, typer.Option(min=0, help="Words less frequent than this become <unk>; subwords are split.")
    ] = 0,
) -> None:
    """Read constituency trees, and encode each sentence with its linearized tree, for a parser.

    Traces (-NONE-), functions (NP-SBJ) and the outermost bracket (ROOT, TOP, or none) are dropped.
    """
    from structattn.tasks.parsing.prepare import prepare_trees
    from structattn.tasks.translation.tokenizer_training import TokenizerSettings

    files = {"train": train, "valid": valid} | ({} if test is None else {"test": test})
    tokenizer = TokenizerSettings(level.value, False, vocabulary_size, vocabulary_threshold)
    prepare_trees(output, files, tags=tags.value, tokenizer=tokenizer)
    print_summary(output)
