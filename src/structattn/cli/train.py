"""``structattn train``: settings to a run folder."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    settings: Annotated[Path, typer.Argument(metavar="SETTINGS.yaml", help="A YAML file of settings.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run folder.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="path.to.field=value", help="Settings that replace the file's.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run that the folder holds.")] = False,
) -> None:
    """Train a model. A killed run continues with --resume as if nothing had happened."""
    from structattn.settings.run import load_settings
    from structattn.training.train import train as run_training

    summary = run_training(load_settings(settings, overrides or ()), output, resume=resume)
    said = "had ended before" if summary.already_finished else "ended"
    best = ""
    if summary.best_cross_entropy is not None:
        best = f"cross-entropy {summary.best_cross_entropy:.4f} nats per symbol"
    elif summary.best_bleu is not None:
        best = f"BLEU {summary.best_bleu:.2f}"
    best = best and f"; best validation {best} after update {summary.best_update}"
    typer.echo(f"{output}: {said} ({summary.reason}) after {summary.update} updates{best}")
