"""The training loop: update, validate, save checkpoints, until a limit is reached."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from structattn.attention.hard import set_temperature
from structattn.runs.metadata import PAUSED
from structattn.runs.selection import selection_score
from structattn.settings.training import Budget
from structattn.support.errors import NonFiniteError
from structattn.support.grouping import listed
from structattn.tasks.task import BatchT, ExampleTask, Scores, Task
from structattn.training.learner import Learner, generator_states, set_generator_states
from structattn.training.non_finite import first_gradient_not_finite, record_non_finite
from structattn.training.optimizers import temperature_of_update
from structattn.training.progress import (
    after_update,
    after_validation,
    current_epoch,
    has_trained,
    improves,
    rate_of_update,
    reason_to_stop,
    validation_is_due,
)
from structattn.training.run import TrainingRun, state_of

EXAMPLES_NAMED = 20  # in an error message
_OF_SOME_TASKS = ("accuracy", "bleu", "tree_regularization")  # scores


@dataclass(frozen=True)
class Update(Generic[BatchT]):
    """The inputs of one update, which are numbered from 1.

    Args:
        max_grad_norm: the global gradient norm is clipped to this; None for no clipping.
        idle: this process has fewer batches than others: the last one is that of another process, and does not count.
    """

    number: int
    batches: Sequence[BatchT]
    learning_rate: float
    max_grad_norm: float | None
    idle: bool = False


def training_step(learner: Learner, task: Task[BatchT], update: Update[BatchT]) -> float:
    """Update the parameters along the gradient of Σ loss_sum / Σ loss_denominator; return Σ loss_sum from before it.

    Raises:
        NonFiniteError: the loss or a gradient is not finite. Parameters, optimizer state and random generators are
            left unchanged; the message names the update, its examples and the first module with such a value.
    """
    generators = generator_states(learner.device)
    loss_sum = accumulate_gradients(learner, task, update.batches, update.idle)
    gradients = [parameter.grad for parameter in learner.parameters if parameter.grad is not None]
    norm = get_total_norm(gradients)
    if learner.parallel is not None:
        loss_sum, norm = learner.parallel.totals(loss_sum, norm)
    loss, gradient_norm = torch.stack([loss_sum, norm.to(loss_sum.dtype)]).tolist()  # the only synchronisation
    if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
        problem = f"the loss is {loss}, the gradient norm {gradient_norm}"
        raise _non_finite_error(learner, task, update, generators, problem)
    if update.max_grad_norm is not None and gradient_norm > update.max_grad_norm:
        clip_grads_with_norm_(learner.parameters, update.max_grad_norm, norm)
    for optimizer in learner.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = update.learning_rate * group["factor"]
        optimizer.step()
    for parameter in learner.parameters:  # zero_grad of the optimizers takes as long as a small layer
        parameter.grad = None
    return float(loss)


def accumulate_gradients(learner: Learner, task: Task[BatchT], batches: Sequence[BatchT], idle: bool = False) -> Tensor:
    """Accumulate gradients over the batches of all processes; return the detached sum of losses over those of this one.

    All processes have equally many batches; the last one of an ``idle`` process does not count.
    """
    parallel, count = learner.parallel, len(batches) - idle
    denominator = sum(task.loss_denominator(batch) for batch in batches[:count])
    if parallel is not None:
        denominator = int(parallel.world.sum(denominator))
    denominator = max(1, denominator)  # masks may leave nothing to predict in all batches; losses are 0 then
    sums = []
    for number, batch in enumerate(batches, start=1):
        with learner.autocast():
            if parallel is None:
                loss_sum = task.loss_sum(learner.accelerated, batch)
            else:
                loss_sum = parallel.loss_sum(task, batch, number == len(batches)) * (number <= count)
        (loss_sum / denominator).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        sums.append(loss_sum.detach())
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum()


def _non_finite_error(
    learner: Learner, task: Task[BatchT], update: Update[BatchT], generators: dict[str, Tensor], problem: str
) -> NonFiniteError:
    """Restore the state before the step, repeat it to find the first module, and restore the state again."""
    set_generator_states(generators, learner.device)
    for optimizer in learner.optimizers:
        optimizer.zero_grad()
    with record_non_finite(learner.model) as values:
        accumulate_gradients(learner, task, update.batches, update.idle)
    gradient = first_gradient_not_finite(learner.model)  # by all processes, which may hold parts of it
    learner.world.require_first_with(bool(values))
    first = values[0] if values else gradient
    set_generator_states(generators, learner.device)
    for optimizer in learner.optimizers:
        optimizer.zero_grad()
    examples = [example for batch in update.batches for example in batch.examples]
    return NonFiniteError(
        f"update {update.number} is not finite: {problem}; first: {first}; examples "
        f"{listed(examples, EXAMPLES_NAMED)}; nothing was changed"
    )


def train_until_done(run: TrainingRun, pause_after: Budget | None = None) -> str:
    """Train until a limit is reached and return its name; the last model is validated and saved.

    A run that has been trained for the budget ``pause_after`` is left as it is, and the reason is ``PAUSED``.

    Raises:
        StopRequested: a signal arrived; the run is in the state after a completed update.
        NonFiniteError: an update or a validation is not finite.
    """
    if run.progress.update == 0 and run.on_validation is not None:
        run.on_validation(run)
    while True:
        run.stop.check()
        reason = reason_to_stop(run.progress, run.settings, run.minutes)
        validated = run.progress.last_validation == run.progress.update and run.progress.best_update is not None
        if validation_is_due(run.progress, run.settings) or (reason and not validated):
            validate(run)
            if run.on_validation is not None:
                run.on_validation(run)
            save(run)
        elif reason:
            return reason
        elif pause_after is not None and has_trained(run.progress, pause_after, run.settings):
            return PAUSED
        else:
            perform_update(run)
            if checkpoint_is_due(run):
                save(run)


def perform_update(run: TrainingRun) -> None:
    """Perform one update and log it."""
    before = run.progress
    epoch = run.order.batches_of(before.epoch)
    indices = epoch[before.position : before.position + run.settings.gradient_accumulation_steps]
    own, idle = (indices, False) if run.learner.parallel is None else run.learner.world.share(indices)
    batches = [run.task.batch(part) for part in own]
    number = before.update + 1
    rate = rate_of_update(run.settings.schedule, before.schedule, number)
    if run.settings.temperature is not None:
        set_temperature(run.learner.model, temperature_of_update(run.settings.temperature, number))
    task = run.task
    if isinstance(task, ExampleTask) and task.further is not None:
        task = task.of_update(number)
    loss_sum = training_step(run.learner, task, Update(number, batches, rate, run.settings.max_grad_norm, idle))
    run.progress = after_update(before, indices, len(epoch))
    num_tokens = sum(run.task.num_tokens(batch) for batch in batches[: len(batches) - idle])
    if run.learner.parallel is not None:
        num_tokens = int(run.learner.world.sum(num_tokens))
    loss = loss_sum / max(num_tokens, 1)  # per token, whatever the gradient's denominator; regularizers included
    run.events.write(
        "train",
        update=number,
        epoch=before.epoch + 1,
        loss=loss,
        tokens=num_tokens,
        learning_rate=rate,
    )
    run.timing.after_update(number, num_tokens)
    run.advance(tokens=num_tokens, loss=loss)


def validate(run: TrainingRun) -> None:
    """Score the validation split and log the scores.

    Raises:
        NonFiniteError: the scores are not finite.
        StopRequested: a signal arrived; nothing is logged.
    """
    began = run.timing.seconds
    with run.learner.autocast():
        if run.learner.parallel is None:
            scores = run.task.validate(run.learner.accelerated, run.stop.check)
        else:
            scores = run.learner.parallel.validate(run.task, run.stop.check)
    if not math.isfinite(scores.perplexity):
        finite = math.isfinite(scores.cross_entropy)
        what = "'s perplexity overflows" if finite else " is not finite"
        raise NonFiniteError(
            f"validation after update {run.progress.update}{what}: cross-entropy {scores.cross_entropy:g}"
        )
    improved = improves(run.progress, selection_score(scores.cross_entropy, scores.bleu))
    run.progress = after_validation(run.progress, scores, run.settings)
    run.events.write(
        "validation",
        update=run.progress.update,
        epoch=current_epoch(run.progress),
        cross_entropy=scores.cross_entropy,
        perplexity=scores.perplexity,
        lower_bound=scores.lower_bound,
        cross_entropy_difference=scores.cross_entropy_difference,
        **{name: value for name in _OF_SOME_TASKS if (value := getattr(scores, name)) is not None},
        improved=improved,
    )
    run.timing.record("validation", update=run.progress.update, duration=round(run.timing.seconds - began, 4))
    run.advance(0, f"validation in epoch {current_epoch(run.progress)}: {_reached(scores)}")


def _reached(scores: Scores) -> str:
    if scores.accuracy is not None:
        return f"accuracy {scores.accuracy:.2%}"
    return f"perplexity {scores.perplexity:.5g}" + ("" if scores.bleu is None else f", BLEU {scores.bleu:.2f}")


def checkpoint_is_due(run: TrainingRun) -> bool:
    """Return whether to save a checkpoint now; not if a validation is due, which saves one itself."""
    settings, progress = run.settings, run.progress
    if validation_is_due(progress, settings):
        return False
    by_count = settings.checkpoint_every is not None and progress.update % settings.checkpoint_every == 0
    minutes = settings.checkpoint_minutes
    if by_count or minutes is None:
        return by_count
    return run.learner.world.from_first(run.timing.minutes_since_checkpoint) >= minutes


def save(run: TrainingRun, temporary: bool = False) -> None:
    """Write a checkpoint. The event log is flushed to disk before the state that contains its length.

    All processes that train together take part; the first one writes.

    Args:
        run: the run.
        temporary: the checkpoint is temporary and deleted at the next save.
    """
    began = run.timing.seconds
    run.events.flush_to_disk()
    state = state_of(run)
    if run.learner.world.is_first:
        run.store.save(state, temporary)
    run.saved = run.progress
    run.timing.after_checkpoint(run.progress.update, began)
