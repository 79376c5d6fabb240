"""``structattn parse``: constituency trees of sentences, or scores on a file of trees."""

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.lines import STANDARD_INPUT, standard_input_lines
from structattn.cli.options import Checkpoint, PreparedData
from structattn.cli.output import print_json, print_table
from structattn.cli.translate import LINES_AT_ONCE

if TYPE_CHECKING:
    from structattn.tasks.parsing.evaluate import ParsingScores
    from structattn.tasks.parsing.predict import Parser


def parse(
    run: Annotated[Path, typer.Argument(help="Run folder of a translation run that was trained on trees.")],
    score: Annotated[
        Path | None, typer.Option(help="File of bracketed trees: parse their words, and score the trees as evalb does.")
    ] = None,
    checkpoint: Checkpoint = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Beam size; 1 is greedy.  \\[default: as in the settings]")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per line, or one document with --score.")
    ] = False,
    data: PreparedData = None,
) -> None:
    """Parse sentences from standard input, words separated by spaces, and write one bracketed tree per line.

    With --score, parse the words of a file of trees instead, and print labelled and unlabelled bracketing scores beside
    those of right- and left-branching trees; they are stored in the run folder and appear in reports.
    """
    from structattn.loading.runs import open_run
    from structattn.tasks.parsing.evaluate import parsing_scores, write_parsing
    from structattn.tasks.parsing.predict import make_parser

    opened = open_run(run, checkpoint, data=data)
    how = opened.settings.evaluation
    parser = make_parser(opened, how if beam is None else how.changed({"beam_size": beam}))
    if score is None:
        _parse_standard_input(parser, json)
        return
    scores = parsing_scores(parser, score)
    write_parsing(opened, score, scores)
    if json:
        print_json(scores)
    else:
        _print(scores)


def _parse_standard_input(parser: "Parser", json: bool) -> None:
    from structattn.support.progress import progress
    from structattn.tasks.parsing.predict import treebank_words
    from structattn.tasks.parsing.trees import bracketed

    lines, done = map(treebank_words, standard_input_lines()), 0
    with progress("Parsing", None, "sentences") as advance:
        while chunk := list(islice(lines, LINES_AT_ONCE)):
            for found in parser(chunk, advance, done + 1, STANDARD_INPUT):
                tree = "" if found is None else bracketed(found.tree)
                if json:
                    print_json({"tree": tree, "repaired": found is not None and found.malformed})
                else:
                    sys.stdout.write(f"{tree}\n")
            sys.stdout.flush()
            done += len(chunk)


def _print(scores: "ParsingScores") -> None:
    from rich.table import Table

    caption = f"brackets in percent; {scores.malformed:.1%} of the outputs were malformed and repaired"
    table = Table(caption=caption, caption_justify="left")
    table.add_column("trees")
    for heading in ("precision", "recall", "F1", "exact", "F1, no labels"):
        table.add_column(heading, justify="right")
    rows = {"parsed": scores.scores, "right-branching": scores.right_branching, "left-branching": scores.left_branching}
    for name, of_trees in rows.items():
        found = of_trees.labelled
        values = (found.precision, found.recall, found.f1, found.exact, of_trees.unlabelled.f1)
        table.add_row(name, *[f"{100 * value:.2f}" for value in values])
    print_table(table)
