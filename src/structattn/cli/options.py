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
