"""``structattn train``: train a model."""

import os
from pathlib import Path
from typing import Annotated

import typer

from structattn.cli.output import print_line


def train(
    settings: Annotated[Path, typer.Argument(metavar="SETTINGS.yaml", help="YAML file with settings.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder to write.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="path.to.field=value", help="Settings that override those of the file."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
) -> None:
    """Train a model. An interrupted run continues with --resume and gives identical results."""
    from structattn.settings.run import load_settings
    from structattn.training.distributed import SINGLE, world_of
    from structattn.training.run_training import train as run_training

    summary = run_training(load_settings(settings, overrides or ()), output, resume=resume)
    if not (world_of(os.environ) or SINGLE).is_first:
        return
    verb = "had already ended" if summary.already_finished else "ended"
    best = ""
    if summary.best_cross_entropy is not None:
        best = f"cross-entropy {summary.best_cross_entropy:.4f} nats per token"
    elif summary.best_bleu is not None:
        best = f"BLEU {summary.best_bleu:.2f}"
    best = best and f"; best validation {best} after update {summary.best_update}"
    print_line(f"{output}: {verb} ({summary.reason}) after {summary.update} updates{best}")
