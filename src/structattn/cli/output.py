"""Print text that may contain names of files or axes, with nothing in it that a terminal would execute, and JSON."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.text import Text

from structattn.support.environment import escape_control_characters, printable

if TYPE_CHECKING:
    from rich.table import Table

Result = TypeVar("Result")
_WITHOUT_TERMINAL = 10_000  # columns at most


def print_line(text: str, error: bool = False) -> None:
    """Print a line to standard output or standard error, with control characters escaped."""
    typer.echo(escape_control_characters(text), err=error)


def print_warning(text: str) -> None:
    """Print a warning to standard error, with control characters escaped."""
    print_line(f"warning: {text}", error=True)


def literal(text: str) -> Text:
    """Return a table cell with exactly this text: no markup, and what cannot be printed escaped."""
    return Text(printable(text))


def numbers_table(
    names: Sequence[str], numbers: Sequence[str], caption: str | None = None, title: str | None = None, padding: int = 1
) -> "Table":
    """Return an empty table with columns of names, on the left, and of numbers."""
    from rich.table import Table

    shown = None if title is None else literal(title)
    table = Table(caption=caption, caption_justify="left", title=shown, title_justify="left", padding=(0, padding))
    for heading in names:
        table.add_column(literal(heading), overflow="fold")
    for heading in numbers:
        table.add_column(literal(heading), justify="right")
    return table


def print_table(table: "Table") -> None:
    """Print a table whose cells are never cut.

    Columns with numbers, those justified to the right, keep the width that they need, and others are wrapped; without a
    terminal nothing is.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.measure import Measurement

    for column in table.columns:
        column.overflow = "fold"
        if column.justify == "right":
            column.min_width = max((cell_len(str(cell)) for cell in column.cells), default=0)
    console = Console()
    if not console.is_terminal:
        unlimited = Console(width=_WITHOUT_TERMINAL)
        console = Console(width=max(console.width, Measurement.get(unlimited, unlimited.options, table).maximum))
    console.print(table, crop=False)


def print_json(content: Any) -> None:
    """Print a JSON document on one line, in ASCII.

    Args:
        content: dataclasses, mappings, sequences, and what JSON can hold; numbers that are not finite become null, and
            anything else a string.
    """
    from pydantic_core import to_jsonable_python

    def known(value: object) -> object:
        return dict(value) if isinstance(value, Mapping) else str(value)

    plain = to_jsonable_python(content, inf_nan_mode="null", fallback=known)
    sys.stdout.write(json.dumps(plain, allow_nan=False) + "\n")


def print_results(
    results: Iterable[Result],
    json: bool,
    as_text: Callable[[Result], str],
    as_json: Callable[[Result], Any] = lambda result: result,
) -> None:
    """Write results as they arrive, each as a JSON document or as text."""
    for each in results:
        if json:
            print_json(as_json(each))
        else:
            sys.stdout.write(as_text(each))
