"""The training loop: update, validate, save checkpoints, until a limit is reached."""

import math

from structattn.runs.ranking import selection_score
from structattn.support.errors import NonFiniteError
from structattn.tasks.task import Scores
from structattn.training import progress as after
from structattn.training.progress import reason_to_stop, validation_is_due
from structattn.training.run import Run, state_of
from structattn.training.schedule import rate_of_update
from structattn.training.step import Update, training_step


def train_until_done(run: Run) -> str:
    """Train until a limit is reached and return its name; the last model is validated and saved.

    Raises:
        StopRequested: a signal arrived; the run is in the state after a completed update.
        NonFiniteError: an update or a validation is not finite.
    """
    while True:
        run.stop.check()
        reason = reason_to_stop(run.progress, run.settings, run.timing.seconds / 60)
        if validation_is_due(run.progress, run.settings) or (reason and not_validated(run)):
            validate(run)
            save(run)
        elif reason:
            return reason
        else:
            update(run)
            if checkpoint_is_due(run):
                save(run)


def not_validated(run: Run) -> bool:
    """Return whether the model has changed since the last validation."""
    return run.progress.last_validation != run.progress.update


def update(run: Run) -> None:
    """Perform one update and log it."""
    before = run.progress
    indices = run.order.next_batches(before.epoch, before.position)
    batches = [run.task.batch(part) for part in indices]
    number = before.update + 1
    rate = rate_of_update(run.settings.schedule, before.schedule, number)
    loss_sum = training_step(run.learner, run.task, Update(number, batches, rate, run.settings.max_grad_norm))
    run.progress = after.after_update(before, len(batches), len(run.order.batches_of(before.epoch)))
    num_tokens = sum(run.task.num_tokens(batch) for batch in batches)
    run.events.write(
        "train",
        update=number,
        epoch=run.progress.epoch_in_words,
        loss=loss_sum / num_tokens,  # per token, whatever the gradient's denominator; regularisers included
        tokens=num_tokens,
        learning_rate=rate,
    )
    run.timing.after_update(number, num_tokens)
    run.advance()


def validate(run: Run) -> None:
    """Score the validation split and log the scores.

    Raises:
        NonFiniteError: the scores are not finite.
        StopRequested: a signal arrived; nothing is logged.
    """
    began = run.timing.seconds
    with run.learner.autocast():
        scores = run.task.validate(run.learner.model, run.stop.check)
    if not math.isfinite(scores.perplexity):
        raise NonFiniteError(
            f"validation after update {run.progress.update} is not finite: cross-entropy {scores.cross_entropy}"
        )
    improved = after.improves(run.progress, selection_score(scores.cross_entropy, scores.bleu))
    run.progress = after.after_validation(run.progress, scores, run.settings)
    record_scores(run, scores, improved)
    run.timing.record("validation", update=run.progress.update, duration=round(run.timing.seconds - began, 4))
    run.advance(0, f"epoch {run.progress.epoch_in_words}, {_reached(scores)}")


def _reached(scores: Scores) -> str:
    if scores.accuracy is not None:
        return f"accuracy {scores.accuracy:.2%}"
    return f"perplexity {scores.perplexity:.5g}" + ("" if scores.bleu is None else f", BLEU {scores.bleu:.2f}")


def record_scores(run: Run, scores: Scores, improved: bool) -> None:
    """Write validation scores to the event log."""
    run.events.write(
        "validation",
        update=run.progress.update,
        epoch=run.progress.epoch_in_words,
        cross_entropy=scores.cross_entropy,
        perplexity=scores.perplexity,
        lower_bound=scores.lower_bound,
        cross_entropy_difference=scores.cross_entropy_difference,
        **{name: value for name in ("accuracy", "bleu") if (value := getattr(scores, name)) is not None},
        improved=improved,
    )


def checkpoint_is_due(run: Run) -> bool:
    """Return whether to save a checkpoint now; not if a validation is due, which saves one itself."""
    settings, progress = run.settings, run.progress
    if validation_is_due(progress, settings):
        return False
    by_count = settings.checkpoint_every is not None and progress.update % settings.checkpoint_every == 0
    minutes = settings.checkpoint_minutes
    return by_count or (minutes is not None and run.timing.minutes_since_checkpoint >= minutes)


def save(run: Run, passing: bool = False) -> None:
    """Write a checkpoint. The event log is flushed to disk before the state that contains its length.

    Args:
        run: the run.
        passing: the checkpoint is temporary and deleted at the next save.
    """
    began = run.timing.seconds
    run.events.flush_to_disk()
    run.store.save(state_of(run), passing)
    run.saved = run.progress
    run.timing.after_checkpoint(run.progress.update, began)
