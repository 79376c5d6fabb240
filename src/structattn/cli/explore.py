"""``structattn explore``: show what runs do on examples and texts, on a page or in a file."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structattn.cli.options import (
    STANDARD_INPUT,
    check_output_files,
    is_terminal_or_null,
    open_one_run,
    open_runs,
    overrides_of,
    split_overrides,
    standard_input_lines,
)
from structattn.cli.output import print_line, print_warning
from structattn.support.errors import StructattnError, UsageError
from structattn.support.files import create_folder

if TYPE_CHECKING:
    from structattn.explorer.recording import Recording
    from structattn.loading.trained_run import TrainedRun

FIRST_EXAMPLES = 3  # shown if nothing is chosen


def explore(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|FILE [RUN|FILE] [FIELD=VALUE]...",
            show_default=False,
            help="Run folders, or JSON files of --save; settings that replace those of the runs.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The page.  [default: explorer.html]")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the recording of one run as JSON, or arrays of NumPy to .npz, in place of a page.",
        ),
    ] = None,
    example: Annotated[
        list[int] | None,
        typer.Option(
            "--example", min=0, metavar="N", help="Index of an example, from 0; repeatable.  [default: 0 1 2]"
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="The split of the examples.  [default: test]")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="TEXT", help="Text, repeatable, in place of lines of standard input."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Answer or translation of each text, in order.  [default: by search]"),
    ] = None,
    depths: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Depths of stacks to record, from the top.  [default: 10]")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Continue texts of a language model by beam search.")
    ] = None,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Serve the page on 127.0.0.1: type texts, switch off heads, force stack actions."),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="N", help="Port of --serve.  [default: a free one]"),
    ] = None,
) -> None:
    """Write a self-contained HTML page that shows attention, stacks and surprisal on examples or texts.

    Of one run, or of two side by side, which are recorded on the same examples and texts: those chosen, else the lines
    of standard input, else, on a terminal, the first examples of the test split. Texts of a translation model without
    --target are translated as its evaluation settings say, with the tree of the beam search. The page needs no server
    and no network; a file of --save in the folder records/ of its run is part of reports.

    Examples:
        structattn explore runs/dyck --example 3 --example 17 --split valid
        structattn explore runs/stack runs/plain --text "The dogs that it saw ran"
        structattn explore runs/stack --text "([](()))" --save brackets.json
    """
    paths, overrides = split_overrides(sources)
    runs = _runs_among(paths)
    if not runs and (example or text or target or beam or overrides or split or depths is not None):
        raise UsageError(
            "--example, --split, --text, --target, --depths, --beam and settings are for run folders; a file holds its "
            "own examples"
        )
    if split and text and not example:
        raise UsageError("--split is for examples; expected --example with it, or no --text")
    split = split or "test"
    if save is not None and (len(paths) > 1 or not runs or serve or output is not None):
        raise UsageError("--save is for one run folder, without --serve and --output")
    if serve and (len(paths) > 1 or not runs or beam is not None or output is not None):
        raise UsageError("--serve is for one run folder, without --beam and --output")
    if port is not None and not serve:
        raise UsageError("--port is for --serve")
    if serve:
        _serve(open_one_run(sources, decodes=True), _first(text, target, example, split), port or 0, depths)
        return
    overrides_of(sources)  # refused before anything is opened
    from structattn.explorer.page import require_page, write_explorer

    written = _file(save or output or Path("explorer.html"), page=save is None)
    if save is None:
        require_page(written)
    else:
        check_output_files({"--save": save}, {})
    # Slow imports, after what is refused at once.
    from structattn.explorer.recording_archive import write_archive
    from structattn.explorer.recording_files import read_recording_json, recording_to_json, write_recording

    opened = [run for path in runs for run in open_runs([str(path), *overrides], decodes=True)]
    how: dict[str, Any] = {"targets": target, "split": split, "beam": beam}
    if depths is not None:
        how["depths"] = depths
    if opened:
        how |= _chosen(opened, text, example, split)
    recorded = _all_recorded(opened, how)
    create_folder(written.parent)
    if save is not None:
        write = write_archive if save.suffix.lower() == ".npz" else write_recording
        write(save, recorded[paths[0]])
    else:
        recordings = [
            recording_to_json(recorded[path]) if path in runs else read_recording_json(path) for path in paths
        ]
        write_explorer(written, recordings)
    print_line(str(written), error=_is_standard_output(written))


def _file(path: Path, *, page: bool) -> Path:
    if str(path) == "-":
        raise UsageError(f"--{'output' if page else 'save'} -: expected a file; standard output is /dev/stdout")
    if page and path.suffix.lower() in (".png", ".svg", ".pdf", ".json", ".npz"):
        raise UsageError(
            f"--output {path}: expected a page, .html, whose buttons save pictures; --save writes .json and .npz"
        )
    return path


def _warn_of_other_data(runs: "Sequence[TrainedRun]", split: str) -> None:
    if len({run.prepared.digest for run in runs}) > 1:
        print_warning(f"the runs have other data; an example of {split!r} may be another text in each")


def _is_standard_output(path: Path) -> bool:
    """Return whether standard output is this file, or a device, behind whose content no line may follow."""
    with suppress(OSError):
        return not path.is_file() or os.path.samestat(path.stat(), os.fstat(1))
    return False


def _runs_among(paths: Sequence[Path]) -> list[Path]:
    """Return those of the paths that are run folders and not files of recordings."""
    if not 1 <= len(paths) <= 2:
        raise UsageError(f"{len(paths)} runs or files; expected 1 or 2")
    if missing := [path for path in paths if not path.exists()]:
        raise StructattnError(f"{missing[0]} does not exist; expected a run folder, or a file that --save wrote")
    return [path for path in paths if not path.is_file()]


def _all_recorded(runs: "Sequence[TrainedRun]", how: Mapping[str, Any]) -> "dict[Path, Recording]":
    """Record each run under a name that no other one has."""
    from structattn.report.runs import shortest_names

    recorded = {run.run_dir: _recorded(run, how, alone=len(runs) == 1) for run in runs}
    names = dict(zip(recorded, shortest_names([*recorded]), strict=True))
    return {path: replace(each, run={**each.run, "name": names[path]}) for path, each in recorded.items()}


def _recorded(run: "TrainedRun", how: Mapping[str, Any], alone: bool) -> "Recording":
    """Record a run; messages name it if it is not alone."""
    from structattn.explorer.recording import record

    try:
        return record(run, **how)
    except StructattnError as error:
        if alone:
            raise
        raise StructattnError(f"{run.run_dir}: {error}") from None


def _chosen(
    runs: "Sequence[TrainedRun]", texts: Sequence[str] | None, examples: Sequence[int] | None, split: str
) -> dict[str, Sequence[Any]]:
    """Return what to record: the given, the lines of standard input, or the first examples of the split."""
    if examples or (not texts and is_terminal_or_null()):
        _warn_of_other_data(runs, split)
    if texts or examples:
        return {"texts": texts or [], "examples": examples or []}
    if is_terminal_or_null():
        from structattn.explorer.searched_text import num_examples

        count = num_examples(runs[0].settings, runs[0].prepared, split)
        return {"texts": [], "examples": range(min(FIRST_EXAMPLES, count))}
    lines = list(standard_input_lines())
    if not lines:
        raise UsageError(f"{STANDARD_INPUT} is empty; expected lines of text, or --text or --example")
    return {"texts": lines, "examples": []}


def _first(
    texts: Sequence[str] | None, targets: Sequence[str] | None, examples: Sequence[int] | None, split: str
) -> dict[str, Any]:
    """Return the request of what a served page shows at first; the first example of the split if nothing is given."""
    if len(texts or []) + len(examples or []) > 1:
        raise UsageError("--serve starts with one text or example; the page takes others")
    if targets and len(targets) != len(texts or []):
        raise UsageError(f"{len(targets)} targets for {len(texts or [])} texts; expected one for each")
    if texts:
        return {"text": texts[0], "target": targets[0] if targets else None}
    return {"example": examples[0] if examples else 0, "split": split}


def _serve(run: "TrainedRun", first: Mapping[str, Any], port: int, depths: int | None) -> None:
    from structattn.support.imports import require_modules

    require_modules("serve", "starlette", "uvicorn")
    import secrets

    from structattn.explorer.recording import DEPTHS
    from structattn.explorer.requests import parse_request
    from structattn.explorer.server import serve_explorer

    def print_link(link: str) -> None:
        print_line(link)
        print_line("Press Ctrl-C to stop.", error=True)

    request = parse_request(json.dumps(first).encode())
    try:
        depths = DEPTHS if depths is None else depths
        serve_explorer(run, request, secrets.token_urlsafe(24), port, depths, on_start=print_link)
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}") from None
