"""Extend a run: what its new limits change, and how it may differ from a run that had them from the start."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from structattn.runs.extensions import Extension, reason_of_end
from structattn.runs.folder import RunFolder
from structattn.runs.logs import events_of
from structattn.runs.state import Progress
from structattn.settings.limits import with_limits
from structattn.settings.run import RunSettings
from structattn.settings.training import EveryExamples
from structattn.support.errors import SettingsError
from structattn.training.progress import (
    DataOrder,
    planned_updates,
    rate_of_update,
    reason_to_stop,
    validation_is_due,
)
from structattn.training.schedules import with_total_steps

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

    Args:
        run_dir: the run folder.
        settings: the settings with the new limits.
        limits: the limits until now.
        progress: the progress of the run.
        order: its data order.
        minutes: its training time so far.

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
