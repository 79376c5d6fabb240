"""Commands with their docstrings as help."""

import inspect
from collections.abc import Callable
from typing import Any

import typer


def add_command(app: typer.Typer, name: str, command: Callable[..., Any]) -> None:
    """Add a command; each paragraph of its docstring is one line of the help, which wraps it."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    app.command(name, help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))(command)
