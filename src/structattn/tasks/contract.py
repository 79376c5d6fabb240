"""What tasks must do, with a model in evaluation mode. Each check raises ``BrokenContractError``.

Transductions and formal languages have contracts in the folders of their topics.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import torch

from structattn.support.errors import BrokenContractError
from structattn.tasks.task import AnyTask

Build = Callable[[], AnyTask]
"""Makes a task from its prepared folder and settings."""


def check_training_batches(build: Build, model: torch.nn.Module) -> None:
    """Batches of an epoch are the same whenever the task is built, and so are their tensors."""
    one, two = build(), build()
    first, second = one.training_batches(0), two.training_batches(0)
    if len(first) != len(second) or not all(map(np.array_equal, first, second)):
        raise BrokenContractError("the batches of an epoch differ from those of the same task built again")
    for indices in first[:3]:
        if not torch.equal(one.batch(indices).targets, two.batch(indices).targets):
            raise BrokenContractError("the tensors of a batch differ from those of the same task built again")


def check_loss(build: Build, model: torch.nn.Module) -> None:
    """The loss of a batch is a finite number with finite gradients, the same each time; its denominator is positive."""
    task = build()
    batch = task.batch(task.training_batches(0)[0])
    loss, again = task.loss_sum(model, batch), task.loss_sum(model, batch)
    if loss.shape != () or not loss.isfinite():
        raise BrokenContractError(f"the loss is {loss.detach().tolist()}; expected a finite number")
    if loss.item() != again.item():
        raise BrokenContractError(f"the loss of a batch is {loss.item()}, and the second time {again.item()}")
    if not loss.requires_grad:
        raise BrokenContractError("the loss has no gradient")
    used = [p for p in torch.autograd.grad(loss, list(model.parameters()), allow_unused=True) if p is not None]
    if not all(gradient.isfinite().all() for gradient in used):
        raise BrokenContractError("a gradient of the loss is not finite")
    if task.loss_denominator(batch) < 1:
        raise BrokenContractError(f"the loss denominator is {task.loss_denominator(batch)}; expected at least 1")


def check_validation(build: Build, model: torch.nn.Module) -> None:
    """Validation gives finite scores, the same each time."""
    task = build()
    first, second = (task.validate(model, lambda: None) for _ in range(2))
    if first != second:
        raise BrokenContractError(f"the scores of a validation are {first}, and the second time {second}")
    if not math.isfinite(first.cross_entropy):
        raise BrokenContractError(f"the cross-entropy is {first.cross_entropy}")


TASK_CHECKS: Final[Mapping[str, Callable[[Build, torch.nn.Module], None]]] = MappingProxyType(
    {"batches": check_training_batches, "loss": check_loss, "validation": check_validation}
)
