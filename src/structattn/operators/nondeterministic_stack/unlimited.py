"""Recomputation, with an unlimited range of numbers, of sequences of a GPU batch that exceed the range of doubles.

On the CPU by the compiled kernel's wide numbers; where the extension is not installed, by the definition in float64, in
log space.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from structattn.operators.common.kernels import compiled_kernels
from structattn.operators.nondeterministic_stack.arguments import Arguments
from structattn.operators.nondeterministic_stack.cpu import (
    nondeterministic_stack_backward,
    nondeterministic_stack_cpu,
)
from structattn.operators.nondeterministic_stack.reference import reference_readings


class Logits(NamedTuple):
    """Copies of some sequences; fields as in `Arguments`."""

    push: Tensor
    replace: Tensor
    pop: Tensor
    values: Tensor | None
    bottom: Tensor | None
    lengths: Tensor
    window: int | None

    @classmethod
    def chosen(
        cls,
        push: Tensor,
        replace: Tensor,
        pop: Tensor,
        values: Tensor | None,
        bottom: Tensor | None,
        lengths: Tensor,
        window: int | None,
        sequences: Tensor,
    ) -> "Logits":
        """Copy the sequences of the given indices to the device that computes them."""
        device = torch.device("cpu") if compiled_kernels() else push.device

        def copied(x: Tensor) -> Tensor:
            return x[sequences].to(device)

        vectors = None if values is None else copied(values), None if bottom is None else bottom.to(device)
        return cls(copied(push), copied(replace), copied(pop), *vectors, copied(lengths), window)


def unlimited_readings(logits: Logits) -> tuple[Tensor, Tensor]:
    """Return readings and log-weights; their device and dtype may differ from the batch's."""
    if compiled_kernels():
        readings, log_weight, _ = nondeterministic_stack_cpu(*logits, True)
        return readings, log_weight
    return reference_readings(_doubled(logits))


def unlimited_gradients(logits: Logits, grad_readings: Tensor, grad_log_weight: Tensor) -> list[Tensor]:
    """Return the gradients of push, replace, pop and, if given, of values and of the bottom for each sequence."""
    if compiled_kernels():
        tables = nondeterministic_stack_cpu(*logits, True)[2]
        cotangents = grad_readings.to(tables.device), grad_log_weight.to(tables.device)
        return list(nondeterministic_stack_backward(*logits, tables, *cotangents))
    # An operator's kernel runs below autograd; autograd works in a new thread.
    with ThreadPoolExecutor(1) as above:
        given = repeat(logits), range(len(logits.push)), repeat(grad_readings), repeat(grad_log_weight)
        sequences = list(above.map(_gradients_by_definition, *given))
    return [torch.stack(same) for same in zip(*sequences, strict=True)]


def _doubled(logits: Logits) -> Arguments:
    push, replace, pop, values, bottom, lengths, window = logits
    vectors = None if values is None else values.double(), None if bottom is None else bottom.double()
    return Arguments(push.double(), replace.double(), pop.double(), *vectors, lengths, window)


def _gradients_by_definition(logits: Logits, b: int, grad_readings: Tensor, grad_log_weight: Tensor) -> list[Tensor]:
    """Return the gradients of one sequence, because that of the bottom is needed for each."""
    *tensors, lengths, window = _doubled(logits)
    *by_sequence, bottom = tensors
    one = [x if x is None else x[b : b + 1].detach().requires_grad_() for x in by_sequence]
    one.append(bottom if bottom is None else bottom.detach().requires_grad_())
    leaves = [x for x in one if x is not None]
    arguments = Arguments(*one, lengths[b : b + 1], window)  # type: ignore[arg-type, call-arg]
    cotangents = grad_readings[b : b + 1].double(), grad_log_weight[b : b + 1].double()
    with torch.enable_grad():
        outputs = reference_readings(arguments)
        gradients = torch.autograd.grad(outputs, leaves, cotangents, materialize_grads=True)
    return [x[0] for x in gradients[:4]] + list(gradients[4:])
