"""Print text that may contain names of files or axes, with nothing in it that a terminal would execute."""

import typer
from rich.text import Text

from structattn.support.text import escape_control_characters


def print_line(text: str, error: bool = False) -> None:
    """Print a line to standard output or standard error, with control characters escaped."""
    typer.echo(escape_control_characters(text), err=error)


def literal(text: str) -> Text:
    """Return a table cell with exactly this text: no markup, and control characters escaped."""
    return Text(escape_control_characters(text))
