"""``structattn evaluate``: score runs and record what their layers do on an example."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structattn.cli.options import Checkpoint, Json, PreparedData
from structattn.cli.output import print_json, print_line

if TYPE_CHECKING:
    from structattn.tasks.scores import SplitScores


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Split to score, repeatable.  \\[default: all but train]")
    ] = None,
    checkpoint: Checkpoint = None,
    explain: Annotated[int, typer.Option(min=0, help="Number of examples of the last split to record.")] = 1,
    json: Json = False,
    data: PreparedData = None,
) -> None:
    """Score runs on held-out data; write scores/, analyses/ and records/ to each run folder."""
    from structattn.cli.scores_table import print_scores
    from structattn.explorer.examples import default_examples
    from structattn.explorer.head_locality import write_locality
    from structattn.explorer.run_analysis import analyze_run
    from structattn.loading.evaluate import evaluate_run
    from structattn.loading.runs import open_run
    from structattn.runs.folder import existing_run
    from structattn.tasks.scores import scores_to_json

    for folder in runs:
        existing_run(folder)
    results = []
    for folder in runs:
        run = open_run(folder, checkpoint, data=data)
        splits = split or [name for name in run.prepared.splits if name != "train"]
        results += [(folder, evaluate_run(run, name)) for name in splits]
        if run.prepared.kind == "parallel":
            for name in splits:
                write_locality(run, name)
        analyze_run(run, splits[-1], default_examples(run, splits[-1], explain))
    if json:
        print_json([{"run": folder, **scores_to_json(scores)} for folder, scores in results])
    else:
        print_scores(results)
    _warn(results)


def _warn(results: "list[tuple[Path, SplitScores]]") -> None:
    """Say what makes scores hard to compare."""
    from structattn.report.cautions import different_ends, worse_than_baselines
    from structattn.runs.folder import RunFolder

    scores: dict[str, dict[str, dict[str, Any]]] = {}
    for folder, score in results:
        scores.setdefault(str(folder), {})[score.split] = asdict(score)
    ends = different_ends({folder: RunFolder(Path(folder)).read_card()["result"] for folder in scores})
    for warning in [*([ends] if ends else []), *worse_than_baselines(scores)]:
        print_line(f"warning: {warning}", error=True)
