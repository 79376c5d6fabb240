"""Pure functions of a run's progress: its changes, whether a validation is due, early stopping and limits."""

from dataclasses import replace

from structattn.runs.ranking import selection_score
from structattn.runs.state import Progress, ScheduleState
from structattn.settings.training import TrainingSettings
from structattn.tasks.task import Scores
from structattn.training import schedule


def first_progress(settings: TrainingSettings) -> Progress:
    """Return the progress of a new run."""
    return Progress(ScheduleState(settings.optimizer.learning_rate))


def after_update(progress: Progress, batches: int, epoch_batches: int) -> Progress:
    """Return the progress after one more update, which consumed ``batches`` of the ``epoch_batches`` of its epoch."""
    position = progress.position + batches
    if position >= epoch_batches:
        return replace(progress, update=progress.update + 1, epoch=progress.epoch + 1, position=0)
    return replace(progress, update=progress.update + 1, position=position)


def improves(progress: Progress, score: float) -> bool:
    """Return whether a validation score is strictly better than all previous ones."""
    return progress.best_score is None or score < progress.best_score


def after_validation(progress: Progress, scores: Scores, settings: TrainingSettings) -> Progress:
    """Return the progress after a validation of the current model."""
    progress = replace(
        progress,
        last_validation=progress.update,
        schedule=schedule.after_validation(settings.schedule, progress.schedule, scores.perplexity),
    )
    score = selection_score(scores.cross_entropy, scores.bleu)
    if not improves(progress, score):
        return replace(progress, bad_validations=progress.bad_validations + 1)
    return replace(progress, best_score=score, best_update=progress.update, bad_validations=0)


def validation_is_due(progress: Progress, settings: TrainingSettings) -> bool:
    """Return whether the current model is at the end of an epoch, or of ``validate_every`` updates, unvalidated."""
    if progress.last_validation == progress.update:
        return False
    if settings.validate_every is None:
        return progress.position == 0
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
