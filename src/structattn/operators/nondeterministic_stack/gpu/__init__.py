"""The nondeterministic stack by Triton kernels, with the CPU for sequences beyond the range of doubles.

Those are recomputed with an unlimited range of numbers: on the CPU by the compiled kernel's wide numbers; where the
extension is not installed, by the definition in float64, in log space.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.common.gpu import gpu_kernels, launch, power_of_two, require_addressable
from structattn.operators.common.kernels import compiled_kernels
from structattn.operators.common.registration import Batching, refuse_double_backward, register
from structattn.operators.nondeterministic_stack.arguments import (
    Arguments,
    Gradients,
    empty_gradients,
    given_cotangents,
)
from structattn.operators.nondeterministic_stack.cpu import (
    nondeterministic_stack_backward,
    nondeterministic_stack_cpu,
)
from structattn.operators.nondeterministic_stack.reference import reference_readings

Readings = tuple[Tensor, Tensor, Tensor, Tensor]


def _sizes(push: Tensor, columns: int) -> tuple[int, int]:
    """Return the number of doubles of one sequence's tables and of its adjoints; see forward_gpu_kernel.py."""
    _, time, Q, S = push.shape[:4]
    C, times = Q * S, time + 1
    tables = times * C * (2 + 2 * C + columns) + times * times * C * (2 * Q + C)
    adjoints = times * C * columns + 2 * times * times * Q * C + 2 * times * Q * C + C * (2 * C + Q + 2)
    return tables, adjoints


def _columns(push: Tensor, values: Tensor | None) -> int:
    """Return M, the number of columns of the readings."""
    return push.shape[1] + 1 if values is None else values.shape[2]


def _constants(push: Tensor, columns: int) -> dict[str, int]:
    """Return compile-time sizes: tiles of three axes with 2048 numbers, fewer for short sequences."""
    _, time, Q, S = push.shape[:4]
    QP, CP, K = power_of_two(Q), power_of_two(Q * S), power_of_two(time, 16)
    J, MB = power_of_two(time, max(128 // QP, 1)), power_of_two(columns, 32)
    return {"Q": Q, "S": S, "QP": QP, "CP": CP, "K": K, "J": J, "MB": MB, "num_warps": 8}


def _vectors(push: Tensor, values: Tensor | None, bottom: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return pushed vectors and bottom vector; unit vectors if the weights over positions are computed."""
    if values is not None and bottom is not None:
        return values.contiguous(), bottom.contiguous()
    batch, time = push.shape[:2]
    units = torch.eye(time + 1, dtype=push.dtype, device=push.device)
    return units[1:].repeat(batch, 1, 1), units[0]


def _clipped_window(push: Tensor, window: int | None) -> int:
    """Return the window as the kernels take it: at most T."""
    return push.shape[1] if window is None else min(window, push.shape[1])


def _unusable(logits: tuple[Tensor, ...], lengths: Tensor) -> Tensor:
    """Return which sequences have NaN or +inf among their logits, (B,)."""
    here = inside(lengths, logits[0].shape[1])
    bad = [~(x.flatten(2) < torch.inf).all(-1) & here for x in logits]
    return torch.stack(bad).any(0).any(-1)


def _chosen(given: Arguments, sequences: Tensor) -> Arguments:
    """Copy the sequences of the given indices to the device that computes them with an unlimited range of numbers."""
    device = torch.device("cpu") if compiled_kernels() else given.push.device

    def copied(x: Tensor) -> Tensor:
        return x[sequences].to(device)

    return given._replace(
        push=copied(given.push),
        replace=copied(given.replace),
        pop=copied(given.pop),
        values=None if given.values is None else copied(given.values),
        bottom=None if given.bottom is None else given.bottom.to(device),
        lengths=copied(given.lengths),
    )


def _unlimited_readings(given: Arguments) -> tuple[Tensor, Tensor]:
    """Return readings and log-weights; their device and dtype may differ from the batch's."""
    if compiled_kernels():
        readings, log_weight, _ = nondeterministic_stack_cpu(*given, True)
        return readings, log_weight
    return reference_readings(_doubled(given))


def _unlimited_gradients(given: Arguments, grad_readings: Tensor, grad_log_weight: Tensor) -> list[Tensor]:
    """Return the gradients of push, replace, pop and, if given, of values and of the bottom for each sequence."""
    if compiled_kernels():
        tables = nondeterministic_stack_cpu(*given, True)[2]
        cotangents = grad_readings.to(tables.device), grad_log_weight.to(tables.device)
        return list(nondeterministic_stack_backward(*given, tables, *cotangents))
    # An operator's kernel runs below autograd; autograd works in a new thread.
    with ThreadPoolExecutor(1) as above:
        every = repeat(given), range(len(given.push)), repeat(grad_readings), repeat(grad_log_weight)
        sequences = list(above.map(_gradients_by_definition, *every))
    return [torch.stack(same) for same in zip(*sequences, strict=True)]


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


@register(
    "nondeterministic_stack_gpu_backward",
    devices=("cpu", "cuda"),
    fake=empty_gradients,
    batching=Batching(shared=("bottom",)),
    gradient=refuse_double_backward("nondeterministic_stack", "GPU"),
)
def nondeterministic_stack_gpu_backward(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    values: Tensor | None,
    bottom: Tensor | None,
    lengths: Tensor,
    window: int | None,
    tables: Tensor,
    failed: Tensor,
    grad_readings: Tensor,
    grad_log_weight: Tensor,
) -> Gradients:
    """Return gradients of push, replace, pop, values (B,T,m) and, for each sequence, bottom (B,m)."""
    batch, time = push.shape[:2]
    columns = grad_readings.shape[-1]
    vectors = _vectors(push, values, bottom)
    logits_ = [torch.zeros_like(x) for x in (push, replace, pop)]
    vectors_ = vectors[0].new_zeros(vectors[0].shape), push.new_zeros(batch, columns)
    size, room_size = _sizes(push, columns)
    room = tables.new_empty(batch * room_size)
    cotangents = grad_readings.contiguous(), grad_log_weight.contiguous()
    launch(
        gpu_kernels("nondeterministic_stack.gpu.backward_gpu_kernel").backward,
        (batch,),
        (*logits_, *vectors_, *cotangents, vectors[0], lengths.where(failed == 0, 0), tables, room),
        *(time, columns, _clipped_window(push, window), size, room_size),
        **_constants(push, columns),
    )
    gradients = [*logits_, *vectors_] if values is not None else logits_
    chosen = failed.nonzero()[:, 0]
    if len(chosen):
        again = _unlimited_gradients(
            _chosen(Arguments(push, replace, pop, values, bottom, lengths, window), chosen),
            *(x[chosen] for x in cotangents),
        )
        for x, exact in zip(gradients, again, strict=False):
            x[chosen] = exact.to(x)
    if values is None:
        return (*logits_, push.new_empty(batch, 0, 0), push.new_empty(batch, 0))  # type: ignore[return-value]
    return tuple(gradients)  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Readings) -> None:
    *tensors, ctx.window = inputs
    ctx.mark_non_differentiable(output[2], output[3])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[2], output[3])


def _gradient(
    ctx: Any, grad_readings: Tensor | None, grad_log_weight: Tensor | None, *_: None
) -> tuple[Tensor | None, ...]:
    *tensors, tables, failed = ctx.saved_tensors
    cotangents = given_cotangents(tensors[0], tensors[3], grad_readings, grad_log_weight)
    *logits, grad_values, grad_bottom = nondeterministic_stack_gpu_backward(
        *tensors, ctx.window, tables, failed, *cotangents
    )
    if tensors[3] is None:
        return (*logits, None, None, None, None)
    return (*logits, grad_values, grad_bottom.sum(0), None, None)


def _by_definition(*inputs: Any) -> Readings:
    nothing = inputs[0].new_empty(len(inputs[0]), 0)
    return *reference_readings(Arguments(*inputs)), nothing, nothing  # no tables


def _empty_readings(push: Tensor, replace: Tensor, pop: Tensor, values: Tensor | None, *_: Any) -> Readings:
    B, T, Q, S = push.shape[:4]
    columns = _columns(push, values)
    tables = push.new_empty(B, _sizes(push, columns)[0], dtype=torch.float64)
    failed = push.new_empty(B, dtype=torch.int32)
    return push.new_empty(B, T, Q, S, columns), push.new_empty(B, T), tables, failed


@register(
    "nondeterministic_stack_gpu",
    devices=("cpu", "cuda"),
    fake=_empty_readings,
    gradient=_gradient,
    save=_save,
    definition=_by_definition,
    batching=Batching(shared=("bottom",)),
)
def nondeterministic_stack_gpu(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    values: Tensor | None,
    bottom: Tensor | None,
    lengths: Tensor,
    window: int | None,
) -> Readings:
    """Return readings (B,T,Q,S,m), log-weights (B,T), the tables, and which sequences (B,) they do not contain.

    Arguments as for the compiled kernel: contiguous, float32 or float64; without ``values`` the readings are the
    weights over positions, and m = T + 1. Sequences that may exceed the range of doubles are recomputed one
    by one with unlimited range: on the CPU if the compiled extension is installed, otherwise by the definition.
    """
    require_addressable("nondeterministic_stack", max(_sizes(push, _columns(push, values))))
    outputs = _empty_readings(push, replace, pop, values, bottom, lengths, window)
    readings, log_weight, tables, failed = (x.zero_() if x is not outputs[2] else x for x in outputs)
    batch, time, Q, S = push.shape[:4]
    columns = readings.shape[-1]
    unusable = _unusable((push, replace, pop), lengths)
    room = tables.new_empty(batch * Q * S * Q * (time + 3))
    vectors = _vectors(push, values, bottom)
    launch(
        gpu_kernels("nondeterministic_stack.gpu.forward_gpu_kernel").forward,
        (batch,),
        (push, replace, pop, *vectors, lengths.where(~unusable, 0), readings, log_weight, failed, tables, room),
        *(time, columns, _clipped_window(push, window), tables.shape[1]),
        **_constants(push, columns),
    )
    failed |= unusable
    chosen = failed.nonzero()[:, 0]
    if len(chosen):
        again = _unlimited_readings(_chosen(Arguments(push, replace, pop, values, bottom, lengths, window), chosen))
        readings[chosen], log_weight[chosen] = (x.to(log_weight) for x in again)
    return readings, log_weight, tables, failed
