"""``structattn contrast``: accuracy of translation runs on contrastive pairs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import Checkpoint, Json, PreparedData
from structattn.cli.output import literal, print_json, print_table

if TYPE_CHECKING:
    from structattn.tasks.translation.contrastive import ContrastiveScores


def contrast(
    pairs: Annotated[
        Path,
        typer.Argument(
            help="LingEval97 JSON file, or a folder with src.*, tgt.correct.*, tgt.incorrect.*, or of such folders."
        ),
    ],
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    checkpoint: Checkpoint = None,
    per_token: Annotated[
        bool, typer.Option(help="Compare log-probabilities per token instead of per sentence.")
    ] = False,
    json: Json = False,
    data: PreparedData = None,
) -> None:
    """Score contrastive pairs: how often is the reference more likely than the same translation with an error?

    Accuracy is given by type of error and by distance. The results are stored in the run folders and appear in reports.
    """
    from structattn.loading.runs import open_run
    from structattn.tasks.translation.contrastive import (
        contrastive_negative_log_likelihoods,
        contrastive_scores,
        read_contrasts,
        write_contrastive,
    )
    from structattn.text.reading import Notices

    contrasts = read_contrasts(pairs, Notices())
    results = []
    for folder in runs:
        run = open_run(folder, checkpoint, data=data)
        nats = contrastive_negative_log_likelihoods(run, contrasts, per_token=per_token)
        scores = contrastive_scores(contrasts, nats, per_token=per_token)
        write_contrastive(run, pairs.resolve().name.split(".json")[0], scores)
        results.append((folder, scores))
    if json:
        print_json([{"run": folder, "scores": scores} for folder, scores in results])
    else:
        _print(results)


def _print(results: "list[tuple[Path, ContrastiveScores]]") -> None:
    """Print one row for each type of error, one column for each run."""
    from rich.table import Table

    unit = "token" if results[0][1].per_token else "sentence"
    table = Table(
        caption=f"accuracy in percent with 95 % interval; log-probabilities per {unit}", caption_justify="left"
    )
    table.add_column("type", overflow="fold")
    table.add_column("pairs", justify="right")
    for folder, _ in results:
        table.add_column(literal(folder.name), justify="right")
    for kind, first in results[0][1].types.items():
        found = [scores.types[kind] for _, scores in results]
        cells = [f"{100 * each.value:.1f} ({100 * each.lower:.1f} to {100 * each.upper:.1f})" for each in found]
        table.add_row(literal(kind), str(first.trials), *cells)
    print_table(table)
