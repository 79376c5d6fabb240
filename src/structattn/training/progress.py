"""How a run's progress changes, and what is due next: functions of progress and settings, without effects."""

from dataclasses import replace

from structattn.runs.ranking import selection_score
from structattn.runs.state import Progress, ScheduleState
from structattn.settings.training import TrainingSettings
from structattn.tasks.task import Scores
from structattn.training import schedule


def first_progress(settings: TrainingSettings) -> Progress:
    """The progress of a run that has not begun."""
    return Progress(ScheduleState(settings.optimizer.learning_rate))


def after_update(progress: Progress, batches: int, epoch_batches: int) -> Progress:
    """One more update, which consumed so many batches of an epoch of ``epoch_batches``."""
    position = progress.position + batches
    if position >= epoch_batches:
        return replace(progress, update=progress.update + 1, epoch=progress.epoch + 1, position=0)
    return replace(progress, update=progress.update + 1, position=position)


def improves(progress: Progress, score: float) -> bool:
    """Whether a validation is strictly better than all before it."""
    return progress.best_score is None or score < progress.best_score


def after_validation(progress: Progress, scores: Scores, settings: TrainingSettings) -> Progress:
    """The model of the last update has these validation scores."""
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
    """Whether the last update ends an epoch, or a stretch of ``validate_every`` updates, and is not validated yet."""
    if progress.last_validation == progress.update:
        return False
    if settings.validate_every is None:
        return progress.position == 0
    return progress.update % settings.validate_every == 0


def reason_to_stop(progress: Progress, settings: TrainingSettings, minutes: float) -> str | None:
    """Why the run is over: ``early_stopping``, ``epochs``, ``updates``, ``time``; None if it is not.

    Args:
        progress: where the run stands.
        settings: the limits.
        minutes: for how long the run has trained.
    """
    limits: list[tuple[str, float, float | None]] = [
        ("early_stopping", progress.bad_validations, settings.early_stopping_patience),
        ("epochs", progress.epoch, settings.max_epochs),
        ("updates", progress.update, settings.max_updates),
        ("time", minutes, settings.max_minutes),
    ]
    return next((reason for reason, reached, limit in limits if limit is not None and reached >= limit), None)
