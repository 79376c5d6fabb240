"""Progress of a run: position in the data, learning rate, validations, early stopping and limits."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from structattn.runs.checkpoint import Progress, ScheduleState
from structattn.runs.selection import selection_score
from structattn.settings.run import RunSettings
from structattn.settings.training import Budget, EveryExamples, TrainingSettings
from structattn.tasks.task import Scores, Task
from structattn.text.batching.sequences import Indices
from structattn.training.optimizers import RATES, ScheduleSettings, schedule_after_validation


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


def planned_updates(settings: RunSettings, order: DataOrder) -> int | None:
    """Return the number of updates of the run without early stopping; None if unlimited.

    Assumes that all epochs have as many updates as the first; with a curriculum, as the first of the same stage.
    """
    training = settings.training
    limits = [training.max_updates] if training.max_updates is not None else []
    if training.max_epochs is not None:
        limits.append(_updates_of_epochs(training.max_epochs, [stage.epochs for stage in training.curriculum], order))
    return min(limits, default=None)


def _updates_of_epochs(epochs: int, stages: Sequence[int], order: DataOrder) -> int:
    """Return the updates of so many epochs, given the lengths of the first stages in epochs."""
    updates = first = 0
    for count in (*stages, epochs):
        trained = min(count, epochs - first)
        updates += trained * order.updates_in_epoch(first) if trained else 0
        first += trained
    return updates


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


def rate_of_update(settings: ScheduleSettings, state: ScheduleState, update: int) -> float:
    """Return the learning rate of an update, counted from 1: that of the state, or by the schedule's formula."""
    formula = RATES.get(type(settings))
    return state.learning_rate if formula is None else formula(settings, state.learning_rate, update)


def improves(progress: Progress, score: float) -> bool:
    """Return whether a validation score is strictly better than all previous ones."""
    return progress.best_score is None or score < progress.best_score


def after_validation(progress: Progress, scores: Scores, settings: TrainingSettings) -> Progress:
    """Return the progress after a validation of the current model.

    One in a stage of the curriculum does not count against the patience of early stopping and of the plateau schedule:
    a model that has only seen short sequences need not improve on all of them.
    """
    in_curriculum = current_epoch(progress) <= sum(stage.epochs for stage in settings.curriculum)
    patient = bool(settings.curriculum) and in_curriculum
    every = settings.validate_every
    # What an update has beyond a multiple counts: otherwise validations would drift from the ends of epochs.
    examples = progress.examples_since_validation % every.examples if isinstance(every, EveryExamples) else 0
    schedule = schedule_after_validation(settings.schedule, progress.schedule, scores.perplexity, patient)
    progress = replace(progress, last_validation=progress.update, examples_since_validation=examples, schedule=schedule)
    score = selection_score(scores.cross_entropy, scores.bleu)
    if not improves(progress, score):
        return progress if patient else replace(progress, bad_validations=progress.bad_validations + 1)
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


def has_trained(progress: Progress, budget: Budget, settings: TrainingSettings) -> bool:
    """Return whether a run has been trained for a budget, and validated at its end if a validation is due there."""
    reached = progress.epoch if budget.unit == "epochs" else progress.update
    return reached >= budget.count and not validation_is_due(progress, settings)


def reason_to_stop(progress: Progress, settings: TrainingSettings, minutes: float) -> str | None:
    """Return the limit reached: ``early_stopping``, ``epochs``, ``updates`` or ``time``; None to continue."""
    limits: list[tuple[str, float, float | None]] = [
        ("early_stopping", progress.bad_validations, settings.early_stopping_patience),
        ("epochs", progress.epoch, settings.max_epochs),
        ("updates", progress.update, settings.max_updates),
        ("time", minutes, settings.max_minutes),
    ]
    return next((reason for reason, reached, limit in limits if limit is not None and reached >= limit), None)
