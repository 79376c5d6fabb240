"""``structattn train``: train a model, resume a run, or extend one."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from structattn.cli.options import split_overrides
from structattn.cli.output import print_line, print_warning
from structattn.support.errors import UsageError

if TYPE_CHECKING:
    from structattn.runs.metadata import TrainingSummary
    from structattn.settings.run import RunSettings


def train(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="Run folder to write.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SETTINGS] [FIELD=VALUE]...",
            help="Recipe, or YAML file of settings, not needed with --resume; settings that replace its own.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run, with new limits (training.max_updates=...) if given.")
    ] = False,
    initial_run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Start from the best weights of another run; where its words are others, from all but those of words.",
        ),
    ] = None,
    parameters: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Choose the width of the model with which it has about N parameters, and print it."
        ),
    ] = None,
    record: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            metavar="EXAMPLE",
            help="Index of an example of the split valid to record at each validation; repeatable.",
        ),
    ] = None,
) -> None:
    """Train a model. An interrupted run continues with --resume and gives identical results.

    A run that has ended goes on if a limit is raised.

    Examples:
        structattn train settings.yaml -o runs/stack
        structattn train text data=data/text -o runs/text
        structattn train recognition --parameters 64000 -o runs/reversal
        structattn train --resume -o runs/stack training.max_updates=400
    """
    from structattn.explorer.run_analysis import TrainingRecorder
    from structattn.report.tables import ended_in_warmup
    from structattn.runs.folder import RunFolder
    from structattn.training.distributed import SINGLE, world_of
    from structattn.training.run_training import train as run_training

    _, changes = split_overrides(settings or ())
    files = [word for word in settings or () if word not in changes]  # as written: ./text is not the recipe text
    if len(files) > 1:
        raise UsageError(f"{files[1]}: a second file, or a setting without a value; expected path.to.field=value")
    file = files[0] if files else None
    if file is None and not resume:
        raise UsageError("SETTINGS, a recipe or file, is missing; only --resume takes the settings from the run folder")
    chosen = _load(file, output, changes)
    if parameters is not None:
        chosen = _matched(chosen, resume, parameters)
    limits = _limits(chosen, changes) if resume and chosen is not None else None
    recorder = TrainingRecorder(tuple(record)) if record else None
    if recorder is not None and chosen is not None:
        recorder.check(chosen)
    summary = run_training(
        chosen, output, resume=resume, limits=limits, initial_run=initial_run, on_validation=recorder
    )
    if (world_of(os.environ) or SINGLE).is_first:
        trained = RunFolder(output).read_settings()
        print_line(f"{output}: {_describe(summary, trained.task)}")
        warning = ended_in_warmup(trained.training, summary.update)
        if warning:
            print_warning(warning)


def _load(file: str | None, run_dir: Path, overrides: Sequence[str]) -> "RunSettings | None":
    """Return the settings of the file, or of the run if there is one, with the overrides."""
    from structattn.runs.folder import RunFolder
    from structattn.settings.run import load_settings, resolve_settings

    if file is not None:
        return load_settings(file, overrides)
    run = RunFolder(run_dir)
    if not run.has_run():
        return None
    return resolve_settings(run.read_settings().model_dump(mode="json"), overrides, str(run.settings))


def _matched(settings: "RunSettings | None", resume: bool, parameters: int) -> "RunSettings":
    """Return the settings with the width that has about so many parameters, and print it."""
    from structattn.tasks.sizes import matched_size
    from structattn.text.folders.prepared import open_prepared
    from structattn.training.distributed import SINGLE, world_of

    if settings is None or resume:
        raise UsageError("--parameters chooses the size of a new run; it does not go with --resume")
    size = matched_size(settings, open_prepared(settings.data), parameters)
    if (world_of(os.environ) or SINGLE).is_first:
        print_line(str(size))
    return size.settings


def _limits(settings: "RunSettings", overrides: Sequence[str]) -> dict[str, Any]:
    """Return the limits that overrides set."""
    from structattn.settings.run import limits_of

    paths = {text.partition("=")[0] for text in overrides}
    return {name: value for name, value in limits_of(settings).items() if f"training.{name}" in paths}


def _describe(summary: "TrainingSummary", task: str) -> str:
    from structattn.settings.run import unit_of_loss

    verb = "had already ended" if summary.already_finished else "ended"
    best = ""
    if summary.best_cross_entropy is not None:
        best = f"cross-entropy {summary.best_cross_entropy:.4f} nats per {unit_of_loss(task)}"
    elif summary.best_bleu is not None:
        best = f"BLEU {summary.best_bleu:.2f}"
    best = best and f"; best validation {best} after update {summary.best_update}"
    return f"{verb} ({summary.reason}) after {summary.update} updates{best}"
