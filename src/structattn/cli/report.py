"""``structattn report``: run folders to one self-contained page."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the report.")],
) -> None:
    """Compare runs on one HTML page that needs no network, with its figures as PNG and PDF beside it."""
    from structattn.reporting import write_report

    typer.echo(str(write_report(runs, output)))
