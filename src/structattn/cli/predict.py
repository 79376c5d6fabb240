"""``structattn predict``: answers of transductions, transformations and parsers."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.lines import STANDARD_INPUT, standard_input_lines
from structattn.cli.options import Checkpoint, JsonLines, PreparedData
from structattn.cli.output import print_json


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder of a transduction, a transformation or a parser.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Number of inputs answered at once.")] = 64,
    json: JsonLines = False,
    checkpoint: Checkpoint = None,
    data: PreparedData = None,
) -> None:
    """Answer each line of standard input with one line.

    The input of a transduction, symbols separated by spaces, is answered by its output; a sentence with a task word by
    the question or the sentence in the present tense; the words of a sentence by their bracketed tree.
    """
    from structattn.loading.runs import open_run
    from structattn.support.progress import progress
    from structattn.tasks.registry import kind_of
    from structattn.tasks.streams import in_chunks

    opened = open_run(run, checkpoint, data=data)
    predictor = kind_of(opened).predictor(opened, batch_size)
    with progress("Predicting", None, "lines") as advance:
        for each in in_chunks(standard_input_lines(), partial(predictor, path=STANDARD_INPUT, advance=advance)):
            if json:
                print_json(each)
            else:
                sys.stdout.write(f"{each.text}\n")
