"""``structattn evaluate``: score runs and record what their layers do on an example."""

from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.options import Checkpoint, PreparedData


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Split to score, repeatable.  \\[default: all but train]")
    ] = None,
    checkpoint: Checkpoint = None,
    explain: Annotated[int, typer.Option(min=0, help="Number of examples of the last split to explain.")] = 1,
    data: PreparedData = None,
) -> None:
    """Score runs on held-out data; write scores/, analyses/ and records/ to each run folder."""
    from structattn.analysis.head_locality import write_locality
    from structattn.analysis.run_analysis import analyze_run, default_examples
    from structattn.cli.scores_table import print_scores
    from structattn.evaluation.run_evaluation import evaluate_run
    from structattn.inference.runs import open_run

    results = []
    for folder in runs:
        run = open_run(folder, checkpoint, data=data)
        splits = split or [name for name in run.prepared.splits if name != "train"]
        results += [(folder, evaluate_run(run, name)) for name in splits]
        if run.prepared.kind == "parallel":
            for name in splits:
                write_locality(run, name)
        analyze_run(run, splits[-1], default_examples(run, splits[-1], explain))
    print_scores(results)
