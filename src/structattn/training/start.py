"""How a run starts: anew, from the weights of another, resumed, or extended; and who observes it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from structattn.models.mode import evaluating
from structattn.runs.checkpoint import Progress
from structattn.runs.extensions import Extension, reason_of_end
from structattn.runs.folder import RunFolder, check_same_settings
from structattn.runs.logs import events_of
from structattn.settings.run import RunSettings, with_limits
from structattn.settings.training import Budget, EveryExamples, TrainingSettings
from structattn.support.errors import CheckpointError, SettingsError, StructattnError, UsageError
from structattn.text.folders.prepared import PreparedFolder
from structattn.training.learner import Learner, generator_states, set_generator_states
from structattn.training.optimizers import with_total_steps
from structattn.training.progress import (
    DataOrder,
    planned_updates,
    rate_of_update,
    reason_to_stop,
    validation_is_due,
)


@dataclass(frozen=True)
class ValidatedModel:
    """The model of a run before its first update or at a validation.

    Args:
        model: in evaluation mode; it must not be changed.
        update: the number of updates so far.
    """

    run_dir: Path
    settings: RunSettings
    prepared: PreparedFolder
    model: torch.nn.Module
    update: int


OnValidation = Callable[[ValidatedModel], object]


def observe(function: OnValidation, learner: Learner, validated: ValidatedModel) -> None:
    """Call a function with the model in evaluation mode; afterwards its mode and all generators are as before."""
    generators = generator_states(learner.device)
    with evaluating(validated.model), torch.no_grad():
        function(validated)
    set_generator_states(generators, learner.device)


Resume = bool | Literal["auto"]


@dataclass(frozen=True)
class Start:
    """The arguments of ``train`` of the same names."""

    resume: Resume
    limits: Mapping[str, Any]
    initial_run: Path | None = None
    pause_after: Budget | None = None
    on_validation: OnValidation | None = None


def settings_of_start(settings: RunSettings | None, run_dir: RunFolder, start: Start) -> RunSettings:
    """Return the settings of a start: those given or, to resume, those of the run; with the new limits.

    Raises:
        UsageError: there are limits, or no settings, but nothing is to be resumed; or there is an initial run, but a
            run is to be resumed.
        StructattnError: no settings are given, and there is no run.
        SettingsError: a limit is unknown or invalid.
    """
    if not start.resume and (settings is None or start.limits):
        raise UsageError(f"{run_dir.path}: a new run takes its limits from its settings; only resume can change them")
    if start.resume is True and start.initial_run is not None:
        raise UsageError(f"{start.initial_run}: only a new run starts from the weights of another")
    if settings is None and not run_dir.has_run():
        raise StructattnError(f"{run_dir.path}: contains no run to resume")
    settings = settings or run_dir.read_settings()
    return with_limits(settings, start.limits) if start.limits else settings


def can_resume(run_dir: RunFolder, settings: RunSettings, start: Start) -> bool:
    """Return whether to resume a run.

    Raises:
        StructattnError: there is a run, but ``resume`` asks for a new one, or the other way round.
        CheckpointError: the settings are not those of the run, or it did not start from the weights of another.
    """
    if not run_dir.has_run():
        if start.resume is True:
            raise StructattnError(f"{run_dir.path}: contains no run to resume")
        return False
    if not start.resume:
        raise StructattnError(f"{run_dir.path}: already contains a run; resume it or choose another folder")
    check_same_settings(run_dir, settings, start.limits)
    if start.initial_run is not None and "initial_weights" not in run_dir.read_card():
        raise CheckpointError(f"{run_dir.path}: this run did not start from the weights of another")
    return True


_FIELDS = {
    "early_stopping": "early_stopping_patience",
    "epochs": "max_epochs",
    "updates": "max_updates",
    "time": "max_minutes",
}


def extend(
    run_dir: RunFolder,
    settings: RunSettings,
    limits: Mapping[str, Any],
    progress: Progress,
    order: DataOrder,
    minutes: float,
) -> Extension:
    """Return the extension of a run that is resumed with other limits.

    Raises:
        SettingsError: a new limit is already reached.
    """
    if reached := reason_to_stop(progress, settings.training, minutes):
        name = _FIELDS[reached]
        value = getattr(settings.training, name)
        raise SettingsError(
            f"training.{name}={value}: {run_dir.path} has already reached this limit, after {progress.update} updates, "
            f"{progress.epoch} epochs, {minutes:.3g} minutes and {progress.bad_validations} validations without "
            "improvement; expected a limit beyond that"
        )
    reason = reason_of_end(run_dir)
    before = with_limits(settings, limits)
    differences = [*_of_schedule(before, settings, progress, order)]
    differences += _of_patience(run_dir, settings.training, progress)
    if reason is not None and progress.last_validation == progress.update:
        differences += _of_last_validation(run_dir, before, progress, order)
    return Extension(progress.update, reason, limits, tuple(differences))


def _of_schedule(before: RunSettings, after: RunSettings, progress: Progress, order: DataOrder) -> Iterator[str]:
    old, new = planned_updates(before, order), planned_updates(after, order)
    schedules = [with_total_steps(each.training, end).schedule for each, end in ((before, old), (after, new))]
    rates = [
        [rate_of_update(each, progress.schedule, update) for update in range(1, progress.update + 1)]
        for each in schedules
    ]
    if rates[0] != rates[1]:
        yield (
            f"the schedule {after.training.schedule.kind!r} ends with the run; the learning rates up to update "
            f"{progress.update} were those of a run of {old} updates, the further ones are those of {new} updates"
        )


def _of_patience(run_dir: RunFolder, training: TrainingSettings, progress: Progress) -> Iterator[str]:
    first = sum(stage.epochs for stage in training.curriculum)  # validations in the curriculum do not count
    bad = longest = 0
    events = events_of(run_dir.events, ["validation"])  # those after the checkpoint will be written again
    for event in (each for each in events if each["update"] <= progress.last_validation):
        bad = 0 if event["improved"] else bad + (event["epoch"] > first)
        longest = max(longest, bad)
    if training.early_stopping_patience is not None and longest >= training.early_stopping_patience:
        yield (
            f"early_stopping_patience={training.early_stopping_patience} would have ended this run before: it has had "
            f"{longest} validations without improvement in a row"
        )


def _of_last_validation(run_dir: RunFolder, before: RunSettings, progress: Progress, order: DataOrder) -> Iterator[str]:
    updates = [event["update"] for event in events_of(run_dir.events, ["validation"])]
    previous = max((update for update in updates if update < progress.update), default=0)
    examples, every = progress.examples_since_validation, before.training.validate_every
    if isinstance(every, EveryExamples) and examples < _examples_of_last_update(progress, order):
        examples += every.examples  # the last update completed a multiple
    unvalidated = replace(progress, last_validation=previous, examples_since_validation=examples)
    if not validation_is_due(unvalidated, before.training):
        yield (
            f"update {progress.update} was validated because the run ended there; validate_every does not ask for it. "
            "The validation counts in early stopping, in the schedule 'plateau' and for the best checkpoint"
        )


def _examples_of_last_update(progress: Progress, order: DataOrder) -> int:
    epoch, end = (progress.epoch, progress.position) if progress.position else (progress.epoch - 1, None)
    batches = order.batches_of(epoch)[:end]
    first = (len(batches) - 1) // order.gradient_accumulation_steps * order.gradient_accumulation_steps
    return sum(map(len, batches[first:]))
