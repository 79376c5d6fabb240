"""``structattn record``: record what a run does on chosen examples and texts."""

from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.lines import standard_input_lines
from structattn.cli.options import Checkpoint, Depths, Examples, ExampleSplit, PreparedData, Targets, Texts
from structattn.cli.output import print_line


def record(
    run: Annotated[Path, typer.Argument(help="Run folder, of any kind.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file, JSON.")],
    example: Examples = None,
    split: ExampleSplit = "test",
    text: Texts = None,
    target: Targets = None,
    depths: Depths = 10,
    beam: Annotated[
        int | None,
        typer.Option(min=1, help="Continue the texts of a language model by beam search of this size, and record it."),
    ] = None,
    checkpoint: Checkpoint = None,
    data: PreparedData = None,
) -> None:
    """Record attention, stacks and surprisal on examples or texts, in one file.

    For each layer and head: attention weights; for stacks, the actions, the most probable run, and the distribution of
    what lies at each depth after each token. Receptive fields where they are defined. Texts of a translation model
    without --target are translated as its evaluation settings say, with the tree of the beam search. A file in the
    folder records/ of the run is part of its report. docs/records.md describes the format; in Python,
    structattn.explorer.recording_files.read_recording reads it.
    """
    from structattn.explorer.recording import record as recording_of
    from structattn.explorer.recording_files import write_recording
    from structattn.loading.runs import open_run
    from structattn.support.files import create_folder

    opened = open_run(run, checkpoint, data=data)
    texts = list(standard_input_lines()) if text is None and not example else text or []
    found = recording_of(opened, texts, target, examples=example or [], split=split, depths=depths, beam=beam)
    create_folder(output.parent)
    write_recording(output, found)
    print_line(str(output))
