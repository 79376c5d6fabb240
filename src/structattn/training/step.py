"""One update: gradients, a check that they are finite, gradient clipping, the optimizer step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from structattn.support.errors import NonFiniteError
from structattn.tasks.task import BatchT, Task
from structattn.training.diagnosis import first_not_finite
from structattn.training.learner import Learner
from structattn.training.snapshot import generator_states, put_generator_states

EXAMPLES_NAMED = 20  # in an error message


@dataclass(frozen=True)
class Update(Generic[BatchT]):
    """The inputs of one update.

    Args:
        number: the number of the update, from 1.
        batches: the batches over which gradients are accumulated.
        learning_rate: the learning rate.
        max_grad_norm: the global gradient norm is clipped to this; None for no clipping.
    """

    number: int
    batches: Sequence[BatchT]
    learning_rate: float
    max_grad_norm: float | None


def training_step(learner: Learner, task: Task[BatchT], update: Update[BatchT]) -> float:
    """Update the parameters along the gradient of Σ loss_sum / Σ loss_denominator over the batches.

    Returns:
        Σ loss_sum, from before the update.

    Raises:
        NonFiniteError: the loss or a gradient is not finite. Parameters, optimizer state and random generators are
            left unchanged; the message names the update, its examples and the first module with such a value.
    """
    generators = generator_states(learner.device)
    loss_sum = accumulate_gradients(learner, task, update.batches)
    norm = torch.nn.utils.get_total_norm(learner.gradients())
    loss, gradient_norm = torch.stack([loss_sum, norm.to(loss_sum.dtype)]).tolist()  # the only synchronisation
    if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
        found = f"the loss is {loss}, the gradient norm {gradient_norm}"
        raise _non_finite_error(learner, task, update, generators, found)
    if update.max_grad_norm is not None and gradient_norm > update.max_grad_norm:
        torch.nn.utils.clip_grads_with_norm_(learner.parameters, update.max_grad_norm, norm)
    for group in learner.optimizer.param_groups:
        group["lr"] = update.learning_rate
    learner.optimizer.step()
    learner.optimizer.zero_grad()
    return float(loss)


def accumulate_gradients(learner: Learner, task: Task[BatchT], batches: Sequence[BatchT]) -> Tensor:
    """Accumulate gradients over the batches; return the detached sum of losses."""
    denominator = sum(task.loss_denominator(batch) for batch in batches)
    sums = []
    for batch in batches:
        with learner.autocast():
            loss_sum = task.loss_sum(learner.model, batch)
        (loss_sum / denominator).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        sums.append(loss_sum.detach())
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum()


def _non_finite_error(
    learner: Learner, task: Task[BatchT], update: Update[BatchT], generators: dict[str, Tensor], found: str
) -> NonFiniteError:
    """Restore the state before the step, repeat it to find the first module, and restore the state again."""
    put_generator_states(generators, learner.device)
    learner.optimizer.zero_grad()
    first = first_not_finite(learner.model, lambda: accumulate_gradients(learner, task, update.batches))
    put_generator_states(generators, learner.device)
    learner.optimizer.zero_grad()
    examples = [example for batch in update.batches for example in batch.examples]
    named = ", ".join(str(example) for example in examples[:EXAMPLES_NAMED])
    more = f" and {len(examples) - EXAMPLES_NAMED} more" if len(examples) > EXAMPLES_NAMED else ""
    return NonFiniteError(
        f"update {update.number} is not finite: {found}; first: {first}; examples {named}{more}; nothing was changed"
    )
