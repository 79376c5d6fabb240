"""The commands of the program ``structattn``, and its messages about errors."""

import logging
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from structattn.cli.compare import compare
from structattn.cli.demo import demo
from structattn.cli.doctor import doctor
from structattn.cli.evaluate import evaluate
from structattn.cli.explore import explore
from structattn.cli.export import export
from structattn.cli.extract import extract
from structattn.cli.generate import generate
from structattn.cli.inspection import inspect
from structattn.cli.listing import show_list
from structattn.cli.log import log
from structattn.cli.options import add_command
from structattn.cli.predict import predict
from structattn.cli.prepare import app as prepare
from structattn.cli.report import report
from structattn.cli.score import score
from structattn.cli.sweep import sweep
from structattn.cli.train import train
from structattn.cli.translate import translate
from structattn.support import __version__
from structattn.support.environment import (
    STANDARD_OUTPUT,
    escape_control_characters,
    is_out_of_memory,
    out_of_memory_message,
)
from structattn.support.errors import ReportedError, StructattnError, described
from structattn.support.plugins import loaded_plugins


class _StderrHandler(logging.Handler):
    """Write log messages to the current ``sys.stderr``."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line."""
        sys.stderr.write(f"structattn: {escape_control_characters(record.getMessage())}\n")


def _fail(message: str, exit_code: int, notes: Sequence[str] = ()) -> SystemExit:
    """Print one line, and the lines of notes, which may be tracebacks; return the exception that ends the program."""
    lines = [f"structattn: {message}", *(line for note in notes for line in note.splitlines())]
    sys.stderr.writelines(f"{escape_control_characters(line)}\n" for line in lines)
    return SystemExit(exit_code)


def _failure(error: BaseException) -> SystemExit | None:
    """Report an error that has its cause outside the program, and return the exception that ends it; None: a bug."""
    if is_out_of_memory(error):
        return _fail(out_of_memory_message(error), StructattnError.exit_code)
    if isinstance(error, ReportedError):
        return SystemExit(error.exit_code)
    if isinstance(error, StructattnError):
        return _fail(str(error), error.exit_code, getattr(error, "__notes__", ()))
    if isinstance(error, BrokenPipeError) and error.filename == STANDARD_OUTPUT:
        return SystemExit(StructattnError.exit_code)  # under `| head -1`; click says nothing either
    if isinstance(error, OSError) or _is_link_loop(error):
        message = described(error) if isinstance(error, OSError) else str(error)
        return _fail(message, StructattnError.exit_code)
    return None


def _is_link_loop(error: BaseException) -> bool:
    """Return whether ``Path.resolve`` found links that lead to each other; from Python 3.13 on it has no error."""
    return isinstance(error, RuntimeError) and str(error).startswith("Symlink loop from ")


def _note_plugins(error: BaseException) -> None:
    """Add to the traceback of an error, which may be that of a plugin, how plugins are checked."""
    if loaded := [str(plugin.path or plugin.name) for plugin in loaded_plugins()]:
        error.add_note(f"`structattn doctor {shlex.join(loaded)}` checks what is registered there.")


_COMMANDS = {  # in the order of a workflow; None: a group of commands
    "demo": demo,
    "prepare": None,
    "train": train,
    "sweep": sweep,
    "inspect": inspect,
    "evaluate": evaluate,
    "generate": generate,
    "translate": translate,
    "score": score,
    "predict": predict,
    "compare": compare,
    "explore": explore,
    "extract": extract,
    "report": report,
    "log": log,
    "export": export,
    "list": show_list,
    "doctor": doctor,
}


class Commands(TyperGroup):
    """Run a command and turn errors outside the program into a message and an exit code, without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of a typical workflow."""
        return sorted(super().list_commands(ctx), key=[*_COMMANDS].index)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program with its arguments."""
        try:
            try:
                return super().main(*args, **extra)
            finally:
                sys.stdout.flush()  # here, because an error at Python's exit would give its own message and exit code
        except BaseException as error:  # panics of libraries in Rust are no Exception
            failure = _failure(error)
            if failure is None:
                _note_plugins(error)
                raise
            raise failure from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,
    help="Structured attention in transformers: prepare data, train, evaluate, report.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"structattn {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log which implementations are used, and why.")
    ] = False,
) -> None:
    logger = logging.getLogger("structattn")
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    if not any(isinstance(handler, _StderrHandler) for handler in logger.handlers):
        logger.addHandler(_StderrHandler())


for _name, _command in _COMMANDS.items():
    if _command is None:
        app.add_typer(prepare, name=_name)
    else:
        add_command(app, _name, _command)
