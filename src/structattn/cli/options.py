"""What commands share: their help, options, runs with overrides, and lines of standard input."""

import functools
import inspect
import os
import re
import stat
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BufferedIOBase, UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from typer.core import TyperCommand

from structattn.support.errors import UsageError
from structattn.support.files import check_writable_file, check_writable_folder
from structattn.support.plugins import load_plugin

if TYPE_CHECKING:
    import torch

    from structattn.loading.trained_run import TrainedRun

Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN... [FIELD=VALUE]...",
        show_default=False,
        help="Run folders; settings that replace theirs, as evaluation.checkpoint=last or data=FOLDER.",
    ),
]
Run = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN [FIELD=VALUE]...",
        show_default=False,
        help="Run folder; settings that replace its own, as evaluation.checkpoint=last or data=FOLDER.",
    ),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Write one JSON object per line.")]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON document in place of tables.")]
Temperature = Annotated[
    float | None,
    typer.Option(min=0, metavar="T", help="Sample from p^(1/T), normalized; 0 takes the likeliest token."),
]
TopK = Annotated[int | None, typer.Option(min=1, metavar="K", help="Sample from the K likeliest tokens.")]
TopP = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="P", help="Sample from the fewest likeliest tokens of probability P."),
]
Plugin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE.py",
        show_default=False,
        help="File that registers mechanisms, tasks or languages, or name of an installed plugin; repeatable.",
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, metavar="N", help="Number of texts computed at once.")]

STANDARD_INPUT = Path("standard input")
"""Its name in messages."""
_ASSIGNMENT = re.compile(r"[a-z_0-9.]+=.*", re.DOTALL)


class _Command(TyperCommand):
    """A command that refuses two paths for an option of one, of which click would drop the first.

    Of numbers and names the last one holds, as in other programs: a script may have them replaced.
    """

    paths: frozenset[str]  # the names of these options

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            UsageError: an option for a path is given twice.
        """
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        for option in given:
            if option.name in self.paths and (count := given.count(option)) > 1:
                raise UsageError(f"{option.opts[0]} is given {count} times; expected once")
        return super().parse_args(ctx, args)


def _taking_paths(command: Callable[..., Any]) -> type[_Command]:
    """Return the class of a command with the names of its options that take one path."""
    annotations = {name: each.annotation for name, each in inspect.signature(command).parameters.items()}
    paths = frozenset(name for name, each in annotations.items() if get_args(each)[:1] in ((Path,), (Path | None,)))
    return type(_Command.__name__, (_Command,), {"paths": paths})


def add_command(app: typer.Typer, name: str, command: Callable[..., Any]) -> None:
    """Add a command with its docstring as help.

    Each paragraph is one line, which the help wraps; the section Examples stands at the end as it is.
    """
    text, _, examples = (inspect.getdoc(command) or "").partition("Examples:\n")
    paragraphs = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    epilog = f"\b\nExamples:\n{textwrap.indent(textwrap.dedent(examples).rstrip(), '  ')}" if examples else None
    app.command(name, cls=_taking_paths(command), help=paragraphs, epilog=epilog)(_with_plugins(command))


def _with_plugins(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the option ``--plugin``: its plugins are loaded first."""

    @functools.wraps(command)
    def run(*, plugin: list[str] | None, **arguments: Any) -> Any:
        for each in plugin or ():
            load_plugin(each)
        return command(**arguments)

    signature = inspect.signature(command)
    option = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugin)
    parameters = [*signature.parameters.values(), option]
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    run.__annotations__ = {**command.__annotations__, "plugin": Plugin}
    return run


def check_output_files(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Check that the files that options name can be written: each replaces what it finds, but nothing of this command.

    Raises:
        UsageError: one is another of them, or is read.
        OSError: one cannot be written, nor created; the error names the path that stands in the way.
    """
    taken = {path.resolve(): f"{option} reads" for option, path in inputs.items() if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        check_writable_file(path)
        if path.exists() and not path.is_file():  # a device or a pipe may get several outputs
            continue
        if path.resolve() in taken:
            raise UsageError(f"{option} {path}: {taken[path.resolve()]} this file; expected another one")
        taken[path.resolve()] = f"{option} writes"


def split_overrides(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Split arguments into paths and overrides ``path.to.field=value``; what exists is a path."""
    overrides = [word for word in words if _ASSIGNMENT.fullmatch(word) and not _exists(word)]
    return [Path(word) for word in words if word not in overrides], overrides


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except OSError:  # longer than names may be
        return False


def run_paths(words: Sequence[str]) -> list[Path]:
    """Return the run folders among arguments, at least one.

    Raises:
        UsageError: there is none.
    """
    paths, _ = split_overrides(words)
    if not paths:
        raise UsageError("the run folder is missing")
    return paths


def distinct_run_paths(words: Sequence[str]) -> list[Path]:
    """Return the run folders among arguments, at least one; a folder given twice is there once.

    Raises:
        UsageError: there is none.
    """
    return list({os.path.realpath(path): path for path in run_paths(words)}.values())


def overrides_of(words: Sequence[str]) -> tuple[Path | None, dict[str, Any]]:
    """Return what arguments replace: the prepared folder, and evaluation settings.

    Raises:
        UsageError: they replace other settings.
    """
    from structattn.settings.overrides import assign

    tree: dict[str, Any] = {}
    for text in split_overrides(words)[1]:
        if not text.startswith(("data=", "evaluation.")):
            raise UsageError(f"{text}: of a trained run, only data=FOLDER and evaluation.FIELD=VALUE can be replaced")
        assign(tree, text)
    data = tree.get("data")
    return None if data is None else Path(str(data)), tree.get("evaluation", {})


def open_runs(
    words: Sequence[str], device: "torch.device | None" = None, writes: str | None = None, *, decodes: bool = False
) -> "Iterator[TrainedRun]":
    """Open the runs among arguments one after another, with the settings that the arguments replace.

    Args:
        words: the arguments.
        device: of the models; None: a GPU if there is one.
        writes: the folder in each run folder for the results, which must be writable before the first run is opened;
            a run given twice is opened once, unlike in an ensemble.
        decodes: whether evaluation settings other than the checkpoint change what the command does.

    Raises:
        UsageError: there is no run, or a setting is replaced that changes nothing.
    """
    from dataclasses import replace

    from structattn.loading.runs import open_run
    from structattn.runs.folder import existing_run

    paths, (data, changes) = (run_paths if writes is None else distinct_run_paths)(words), overrides_of(words)
    if others := [] if decodes else [name for name in changes if name != "checkpoint"]:
        raise UsageError(f"evaluation.{others[0]}: only data and evaluation.checkpoint can be replaced here")
    for path in paths:
        existing_run(path)
        if writes is not None:
            check_writable_folder(path / writes)
    checkpoint = str(changes["checkpoint"]) if "checkpoint" in changes else None
    for path in paths:
        run = open_run(path, checkpoint, data=data, device=device)
        evaluation = run.settings.evaluation.changed(changes)
        yield replace(run, settings=run.settings.model_copy(update={"evaluation": evaluation}))


def open_one_run(
    words: Sequence[str], device: "torch.device | None" = None, writes: str | None = None, *, decodes: bool = False
) -> "TrainedRun":
    """Open the only run among arguments; see ``open_runs``.

    Raises:
        UsageError: there is none, or several.
    """
    if len(paths := run_paths(words)) > 1:
        raise UsageError(f"{len(paths)} run folders; expected one")
    return next(open_runs(words, device, writes, decodes=decodes))


def standard_input_lines() -> Iterator[str]:
    """Yield the lines of standard input as they arrive.

    Raises:
        DataError: they are not text in UTF-8; see ``text.reading``.
    """
    from structattn.text.reading import Notices, read_lines_from

    source = cast(BufferedIOBase, sys.stdin.buffer)  # the annotation says BinaryIO
    return (line.text for line in read_lines_from(source, STANDARD_INPUT, Notices()))


def is_terminal_or_null() -> bool:
    """Return whether standard input is a terminal or /dev/null, as opposed to a file or the output of a program."""
    with suppress(UnsupportedOperation):
        return stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode)
    return False
