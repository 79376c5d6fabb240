"""``structattn log``: replay the event log of a run into a tracker."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from structattn.cli.output import print_line

Name = Literal["tensorboard", "mlflow", "wandb"]


def log(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    to: Annotated[Name, typer.Option(help="Tracker.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the tracker's files.  [default: RUN/TRACKER]"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
) -> None:
    """Replay the training and validation events of a run into a tracker, each update once, also after resumes.

    Weights & Biases are used offline, MLflow in a folder, unless WANDB_MODE or MLFLOW_TRACKING_URI say otherwise.

    Examples:
        structattn log runs/stack --to tensorboard --follow
    """
    from structattn.interop.trackers import log_run
    from structattn.support.progress import progress

    with progress(f"Logging to {to}", None, "events") as advance:
        count = log_run(run, to, output, follow=follow, advance=advance)
    print_line(f"{count} events of {run} logged to {to}")
