"""Progress of a run: position in the data, learning-rate schedule, validations, early stopping and limits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from structattn.data.batching.sequences import Indices
from structattn.runs.ranking import selection_score
from structattn.runs.state import Progress, ScheduleState
from structattn.settings.training import (
    ConstantSchedule,
    EveryExamples,
    LinearSchedule,
    PlateauSchedule,
    TrainingSettings,
    WarmupSchedule,
)
from structattn.support.errors import SettingsError
from structattn.tasks.task import Scores, Task

ScheduleSettings = ConstantSchedule | LinearSchedule | PlateauSchedule | WarmupSchedule

PLATEAU_THRESHOLD = 1e-4  # relative; torch's default
PLATEAU_SMALLEST_CHANGE = 1e-8  # absolute; torch's default


@dataclass
class DataOrder:
    """The batches of the current epoch.

    Args:
        task: the task that provides them.
        gradient_accumulation_steps: batches in an update; the last update of an epoch may have fewer.
    """

    task: Task[Any]
    gradient_accumulation_steps: int
    _epoch: int | None = None
    _batches: list[Indices] = field(default_factory=list)

    def batches_of(self, epoch: int) -> list[Indices]:
        """Return all batches of an epoch; the last epoch requested is cached."""
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self.task.training_batches(epoch)
        return self._batches

    def updates_in_epoch(self, epoch: int) -> int:
        """Return the number of updates in an epoch."""
        return -(-len(self.batches_of(epoch)) // self.gradient_accumulation_steps)


def first_progress(settings: TrainingSettings) -> Progress:
    """Return the progress of a new run."""
    return Progress(ScheduleState(settings.optimizer.learning_rate))


def current_epoch(progress: Progress) -> int:
    """Return the epoch of the last update, counted from 1."""
    return progress.epoch + (1 if progress.position else 0)


def after_update(progress: Progress, batches: Sequence[Indices], epoch_batches: int) -> Progress:
    """Return the progress after one more update, which consumed ``batches`` of the ``epoch_batches`` of its epoch."""
    examples = progress.examples_since_validation + sum(map(len, batches))
    progress = replace(progress, update=progress.update + 1, examples_since_validation=examples)
    position = progress.position + len(batches)
    if position >= epoch_batches:
        return replace(progress, epoch=progress.epoch + 1, position=0)
    return replace(progress, position=position)


def improves(progress: Progress, score: float) -> bool:
    """Return whether a validation score is strictly better than all previous ones."""
    return progress.best_score is None or score < progress.best_score


def after_validation(progress: Progress, scores: Scores, settings: TrainingSettings) -> Progress:
    """Return the progress after a validation of the current model."""
    progress = replace(
        progress,
        last_validation=progress.update,
        examples_since_validation=0,
        schedule=schedule_after_validation(settings.schedule, progress.schedule, scores.perplexity),
    )
    score = selection_score(scores.cross_entropy, scores.bleu)
    if not improves(progress, score):
        return replace(progress, bad_validations=progress.bad_validations + 1)
    return replace(progress, best_score=score, best_update=progress.update, bad_validations=0)


def validation_is_due(progress: Progress, settings: TrainingSettings) -> bool:
    """Return whether the model is at the end of an epoch, or of ``validate_every`` updates or examples, unvalidated."""
    if progress.last_validation == progress.update:
        return False
    if settings.validate_every is None:
        return progress.position == 0
    if isinstance(settings.validate_every, EveryExamples):
        return progress.examples_since_validation >= settings.validate_every.examples
    return progress.update % settings.validate_every == 0


def reason_to_stop(progress: Progress, settings: TrainingSettings, minutes: float) -> str | None:
    """Return the limit reached: ``early_stopping``, ``epochs``, ``updates`` or ``time``; None to continue.

    Args:
        progress: the progress of the run.
        settings: the limits.
        minutes: the training time so far.
    """
    limits: list[tuple[str, float, float | None]] = [
        ("early_stopping", progress.bad_validations, settings.early_stopping_patience),
        ("epochs", progress.epoch, settings.max_epochs),
        ("updates", progress.update, settings.max_updates),
        ("time", minutes, settings.max_minutes),
    ]
    return next((reason for reason, reached, limit in limits if limit is not None and reached >= limit), None)


def rate_of_update(settings: ScheduleSettings, state: ScheduleState, update: int) -> float:
    """Return the learning rate of an update, counted from 1.

    Constant and plateau: the state's rate r. Warm-up over n updates: r · min(update / n, sqrt(n / update)); the rule of
    Vaswani et al. (2017) is that with r = 1 / sqrt(d n). Linear, warm-up over w of n updates:
    r · update / w up to w, from there r + (end - r) · (update - w) / (n - w), and end from n on.
    """
    if isinstance(settings, LinearSchedule):
        return _linear(settings, state.learning_rate, update)
    if isinstance(settings, WarmupSchedule):
        return state.learning_rate * min(update / settings.warmup_steps, math.sqrt(settings.warmup_steps / update))
    return state.learning_rate


def with_total_steps(settings: TrainingSettings, planned: int | None) -> TrainingSettings:
    """Return the settings with a linear schedule that ends at the last of the planned updates, unless it has an end.

    Raises:
        SettingsError: there are no more updates than those of the warm-up.
    """
    schedule = settings.schedule
    if not isinstance(schedule, LinearSchedule) or schedule.total_steps is not None:
        return settings
    if planned is None or planned <= schedule.warmup_steps:  # settings refuse a run without a limit
        raise SettingsError(
            f"training.schedule.warmup_steps={schedule.warmup_steps}; expected less than the updates, {planned}"
        )
    return settings.model_copy(update={"schedule": schedule.model_copy(update={"total_steps": planned})})


def _linear(settings: LinearSchedule, rate: float, update: int) -> float:
    assert settings.total_steps is not None, "with_total_steps sets it"
    warmup = settings.warmup_steps
    if update < warmup:
        return rate * update / warmup
    part = min(1.0, (update - warmup) / (settings.total_steps - warmup))
    return rate + (settings.end_learning_rate - rate) * part


def schedule_after_validation(settings: ScheduleSettings, state: ScheduleState, perplexity: float) -> ScheduleState:
    """Return the state after a validation; only the plateau schedule changes.

    The rule is that of ``torch.optim.lr_scheduler.ReduceLROnPlateau``: a perplexity is good if it is below
    best · (1 - 1e-4), and the rate falls when there have been more than ``patience`` validations in a row that
    were not, so with the patience of 5 of DuSell & Chiang (2024) after the sixth.
    """
    if not isinstance(settings, PlateauSchedule):
        return state
    if state.best is None or perplexity < state.best * (1 - PLATEAU_THRESHOLD):
        return replace(state, best=perplexity, bad=0)
    if state.bad < settings.patience:
        return replace(state, bad=state.bad + 1)
    lower = state.learning_rate * settings.factor
    changed = state.learning_rate - lower > PLATEAU_SMALLEST_CHANGE
    return replace(state, learning_rate=lower if changed else state.learning_rate, bad=0)
