"""Options that kinds of data share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the prepared data.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of worker processes.  \\[default: one for each core]")]


class Level(StrEnum):
    """The unit of tokens."""

    bpe = "bpe"
    sentencepiece_bpe = "sentencepiece-bpe"
    sentencepiece_unigram = "sentencepiece-unigram"
    word = "word"
    character = "character"
    byte = "byte"


class Marker(StrEnum):
    """How subwords mark word boundaries."""

    end = "end"
    start = "start"
    continuation = "continuation"
    none = "none"
