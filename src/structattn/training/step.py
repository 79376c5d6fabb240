"""One update: gradients, a look at whether they are finite, clipping, the optimizer's step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from structattn.support.errors import NonFiniteError
from structattn.tasks.task import Task
from structattn.training.diagnosis import first_not_finite
from structattn.training.learner import Learner
from structattn.training.snapshot import generator_states, put_generator_states

EXAMPLES_NAMED = 20  # in an error message


@dataclass(frozen=True)
class Update:
    """What one update is made of.

    Args:
        number: counted from 1.
        batches: the batches whose gradients are added.
        learning_rate: the rate.
        max_grad_norm: what the global gradient norm is cut to.
    """

    number: int
    batches: Sequence[Any]
    learning_rate: float
    max_grad_norm: float | None


def training_step(learner: Learner, task: Task[Any], update: Update) -> float:
    """Move the parameters along the gradient of Σ loss_sum / Σ loss_denominator over the update's batches.

    Returns:
        Σ loss_sum, from before the update.

    Raises:
        NonFiniteError: the loss or a gradient is not finite. Parameters, optimizer and generators are then as they
            were before; the message names the update, its examples and the first bad module.
    """
    generators = generator_states(learner.device)
    loss_sum = accumulate_gradients(learner, task, update.batches)
    gradients = learner.gradients()
    norm = torch.nn.utils.get_total_norm(gradients)
    total, total_norm = torch.stack([loss_sum, norm.to(loss_sum.dtype)]).tolist()  # the only wait for the device
    if not (math.isfinite(total) and math.isfinite(total_norm)):
        raise _undone(learner, task, update, generators, f"the loss is {total}, the gradient norm {total_norm}")
    if update.max_grad_norm is not None and total_norm > update.max_grad_norm:
        torch.nn.utils.clip_grads_with_norm_(learner.parameters, update.max_grad_norm, norm)
    learner.set_learning_rate(update.learning_rate)
    learner.optimizer.step()
    learner.optimizer.zero_grad()
    return float(total)


def accumulate_gradients(learner: Learner, task: Task[Any], batches: Sequence[Any]) -> Tensor:
    """Accumulate gradients over the batches; return the detached sum of losses."""
    denominator = sum(task.loss_denominator(batch) for batch in batches)
    sums = []
    for batch in batches:
        with learner.fabric.autocast():  # whichever of the model's methods the loss calls
            loss_sum = task.loss_sum(learner.model, batch)
        learner.fabric.backward(loss_sum / denominator)
        sums.append(loss_sum.detach())
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum()


def _undone(
    learner: Learner, task: Task[Any], update: Update, generators: dict[str, Tensor], what: str
) -> NonFiniteError:
    """Leave no trace of the step, and say where it went wrong."""
    put_generator_states(generators, learner.device)
    learner.optimizer.zero_grad()
    bad = first_not_finite(learner.module, lambda: _repeat(learner, task, update.batches))
    put_generator_states(generators, learner.device)
    learner.optimizer.zero_grad()
    examples = [example for batch in update.batches for example in batch.examples]
    named = ", ".join(str(example) for example in examples[:EXAMPLES_NAMED])
    more = f" and {len(examples) - EXAMPLES_NAMED} more" if len(examples) > EXAMPLES_NAMED else ""
    return NonFiniteError(
        f"update {update.number} is not finite: {what}; first: {bad}; examples {named}{more}; nothing was changed"
    )


def _repeat(learner: Learner, task: Task[Any], batches: Sequence[Any]) -> None:
    accumulate_gradients(learner, task, batches)
