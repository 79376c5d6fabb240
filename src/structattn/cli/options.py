"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Checkpoint = Annotated[
    str | None,
    typer.Option(
        help="Checkpoint: best, last, or best-K or last-K, the average of K.  \\[default: as in the run's settings]"
    ),
]
PreparedData = Annotated[Path | None, typer.Option(help="The prepared folder, if it was moved.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Write one JSON object per line.")]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document in place of tables.")]

Examples = Annotated[
    list[int] | None, typer.Option("--example", min=0, help="Index of an example of the split, from 0; repeatable.")
]
ExampleSplit = Annotated[str, typer.Option("--split", help="The split of the examples.")]
Texts = Annotated[
    list[str] | None,
    typer.Option("--text", help="Text, repeatable.  \\[default: without --example, the lines of standard input]"),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", help="Answer or translation of each text, in the same order.  \\[default: by search]"),
]
Depths = Annotated[int, typer.Option("--depths", min=0, help="Number of depths of stacks to record, from the top.")]
