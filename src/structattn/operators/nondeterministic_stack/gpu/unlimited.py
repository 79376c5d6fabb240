"""Sequences beyond the range of doubles, computed on the CPU with an unlimited range of numbers.

By the compiled kernel's wide numbers; where the extension is not installed, by the definition in float64, in log space.
Everything is on the CPU, where autograd runs in the thread that calls it: below autograd, a thread of the device's own
would be the one that waits.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import torch
from torch import Tensor

from structattn.operators.common.kernels import compiled_kernels
from structattn.operators.nondeterministic_stack.arguments import Arguments
from structattn.operators.nondeterministic_stack.cpu import (
    nondeterministic_stack_backward,
    nondeterministic_stack_cpu,
)
from structattn.operators.nondeterministic_stack.reference import reference_readings


def unlimited_readings(given: Arguments) -> tuple[Tensor, Tensor]:
    """Return readings and log-weights; their device and dtype may differ from the arguments'."""
    given = _on_cpu(given)
    if compiled_kernels():
        readings, log_weight, _ = nondeterministic_stack_cpu(*given, True)
        return readings, log_weight
    return reference_readings(_doubled(given))


def unlimited_gradients(given: Arguments, grad_readings: Tensor, grad_log_weight: Tensor) -> list[Tensor]:
    """Return the gradients of push, replace, pop and, if given, of values and of the bottom for each sequence."""
    given, cotangents = _on_cpu(given), (grad_readings.cpu(), grad_log_weight.cpu())
    if compiled_kernels():
        tables = nondeterministic_stack_cpu(*given, True)[2]
        return list(nondeterministic_stack_backward(*given, tables, *cotangents))
    # An operator's kernel runs below autograd; autograd works in a new thread.
    with ThreadPoolExecutor(1) as above:
        every = repeat(given), range(len(given.push)), repeat(cotangents[0]), repeat(cotangents[1])
        sequences = list(above.map(_gradients_by_definition, *every))
    return [torch.stack(same) for same in zip(*sequences, strict=True)]


def _on_cpu(given: Arguments) -> Arguments:
    tensors = (x if x is None else x.cpu() for x in given[:6])
    return Arguments(*tensors, given.window)  # type: ignore[arg-type, call-arg]


def _doubled(given: Arguments) -> Arguments:
    """Return the same arguments in float64."""
    push, replace, pop, values, bottom, lengths, window = given
    vectors = None if values is None else values.double(), None if bottom is None else bottom.double()
    return Arguments(push.double(), replace.double(), pop.double(), *vectors, lengths, window)


def _gradients_by_definition(given: Arguments, b: int, grad_readings: Tensor, grad_log_weight: Tensor) -> list[Tensor]:
    """Return the gradients of one sequence, because that of the bottom is needed for each."""
    *tensors, lengths, window = _doubled(given)
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
