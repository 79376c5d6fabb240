"""``structattn explore``: write the explorer, a page that shows what runs do on examples and texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structattn.cli.lines import standard_input_lines
from structattn.cli.options import Checkpoint, Depths, Examples, ExampleSplit, PreparedData, Targets, Texts
from structattn.cli.output import print_line
from structattn.support.errors import UsageError

if TYPE_CHECKING:
    from structattn.explorer.recording import Recording
    from structattn.loading.trained_run import TrainedRun


def explore(
    sources: Annotated[
        list[Path], typer.Argument(metavar="RUN|FILE [RUN|FILE]", help="Run folders, or files of `structattn record`.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("explorer.html"),
    example: Examples = None,
    split: ExampleSplit = "test",
    text: Texts = None,
    target: Targets = None,
    depths: Depths = 10,
    beam: Annotated[
        int | None,
        typer.Option(min=1, help="Continue the texts of a language model by beam search of this size, and show it."),
    ] = None,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Serve the page of one run on 127.0.0.1 in place of writing it: type texts, switch off heads, force "
            "actions of stacks.",
        ),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, show_default="one that is free", help="Port of --serve.")] = 0,
    checkpoint: Checkpoint = None,
    data: PreparedData = None,
) -> None:
    """Write a self-contained HTML page that shows attention, stacks and surprisal on examples or texts.

    Of one run, or of two side by side, which are recorded on the same examples and texts. A file of `structattn record`
    is shown as it is. The page needs no server and no network. docs/explorer.md shows what is on it.
    """
    from structattn.explorer.page import write_explorer
    from structattn.explorer.recording_files import read_recording_json, recording_to_json
    from structattn.loading.runs import open_run
    from structattn.support.files import create_folder

    if len(sources) > 2:
        raise UsageError(f"{len(sources)} runs or files; expected 1 or 2")
    runs = [path for path in sources if not path.is_file()]
    if not runs and (example or text or target or beam):
        raise UsageError("--example, --text, --target and --beam are for run folders; a file holds its own examples")
    if serve and (len(sources) > 1 or not runs or beam is not None):
        raise UsageError("--serve is for one run folder, without --beam")
    arguments: dict[str, Any] = {"targets": target, "examples": example or [], "split": split, "depths": depths}
    arguments["beam"] = beam
    if serve:
        _serve(open_run(sources[0], checkpoint, data=data), _first(text, target, example, split), port, depths)
        return
    arguments["texts"] = _texts(text, example) if runs else []
    found = [
        recording_to_json(_recorded(path, arguments, checkpoint, data)) if path in runs else read_recording_json(path)
        for path in sources
    ]
    create_folder(output.parent)
    write_explorer(output, found)
    print_line(str(output))


def _texts(texts: Sequence[str] | None, examples: Sequence[int] | None) -> list[str]:
    return list(standard_input_lines()) if texts is None and not examples else list(texts or [])


def _recorded(run: Path, arguments: dict[str, Any], checkpoint: str | None, data: Path | None) -> "Recording":
    from structattn.explorer.recording import record
    from structattn.loading.runs import open_run

    return record(open_run(run, checkpoint, data=data), **arguments)


def _first(
    texts: Sequence[str] | None, targets: Sequence[str] | None, examples: Sequence[int] | None, split: str
) -> dict[str, Any]:
    """Return the request of what a served page shows at first; the first example of the split if nothing is given."""
    if len(texts or []) + len(examples or []) > 1:
        raise UsageError("--serve starts with one text or example; the page takes others")
    if texts:
        return {"text": texts[0], "target": targets[0] if targets else None}
    return {"example": examples[0] if examples else 0, "split": split}


def _serve(run: "TrainedRun", first: Mapping[str, Any], port: int, depths: int) -> None:
    from structattn.support.imports import require_modules

    require_modules("serve", "starlette", "uvicorn")
    import json
    import secrets

    from structattn.explorer.requests import parse_request
    from structattn.explorer.server import serve_explorer

    def print_link(link: str) -> None:
        print_line(link)
        print_line("Press Ctrl-C to stop.", error=True)

    request = parse_request(json.dumps(first).encode())
    try:
        serve_explorer(run, request, secrets.token_urlsafe(24), port, depths, on_start=print_link)
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}") from None
