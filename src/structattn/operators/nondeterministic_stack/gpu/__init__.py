"""The nondeterministic stack by Triton kernels, in tiles on anti-diagonals; DERIVATION.md, "On a GPU"."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.gpu import Lane, dot_precision, require_addressable
from structattn.operators.common.registration import Batching, refuse_double_backward, register
from structattn.operators.nondeterministic_stack.arguments import (
    Arguments,
    Gradients,
    empty_gradients,
    given_cotangents,
)
from structattn.operators.nondeterministic_stack.gpu.backward import gradients
from structattn.operators.nondeterministic_stack.gpu.forward import tiling_of, vectors
from structattn.operators.nondeterministic_stack.gpu.ladder import (
    BATCH,
    DOUBLES,
    UNLIMITED,
    capturing,
    climb,
    first_of_its_kind,
    repeated,
    selected,
)
from structattn.operators.nondeterministic_stack.gpu.tiles import Shares
from structattn.operators.nondeterministic_stack.gpu.unlimited import unlimited_gradients
from structattn.operators.nondeterministic_stack.reference import reference_readings

Outputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


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
    tf32: bool,
    floats: bool,
    rung: Tensor,
    pushed: Tensor,
    replaced: Tensor,
    factor: Tensor,
    R: Tensor,
    W: Tensor,
    a: Tensor,
    E: Tensor,
    grad_readings: Tensor,
    grad_log_weight: Tensor,
) -> Gradients:
    """Return gradients of push, replace, pop, values (B,T,m) and, for each sequence, bottom (B,m)."""
    given = Arguments(push, replace, pop, values, bottom, lengths, window)
    cotangents = grad_readings.contiguous(), grad_log_weight.contiguous()
    shares = Shares(lengths.where(rung == BATCH, 0).int(), pushed, replaced, factor, R, W, a, E)
    found = _gradients(given, shares, cotangents, tf32)
    if capturing(push.device.type):
        for x in () if floats else found:
            x.masked_fill_((rung != BATCH).view(-1, *[1] * (x.dim() - 1)), torch.nan)
    else:
        if first_of_its_kind("backward", given, grad_readings.shape[-1]):
            _repeat(given, cotangents, [DOUBLES], [])
        _repeat(given, cotangents, rung.tolist(), found if values is not None else found[:3])
    if values is None:
        return *found[:3], push.new_empty(push.shape[0], 0, 0), push.new_empty(push.shape[0], 0)
    return found


def _gradients(given: Arguments, shares: Shares, cotangents: tuple[Tensor, Tensor], tf32: bool) -> Gradients:
    precision = dot_precision(shares.R.dtype, tf32)
    return gradients(shares, tiling_of(given), vectors(given)[0], *cotangents, precision)


def _repeat(given: Arguments, cotangents: tuple[Tensor, Tensor], rungs: list[int], found: Sequence[Tensor]) -> None:
    """Compute the gradients of the sequences beyond the first rung."""
    for level in sorted({*rungs} - {BATCH}):
        sequences = torch.tensor([b for b, x in enumerate(rungs) if x == level], device=given.push.device)
        chosen = selected(given, sequences)
        chosen_cotangents = cotangents[0][sequences], cotangents[1][sequences]
        again: Sequence[Tensor]
        if level == UNLIMITED:
            again = unlimited_gradients(chosen, *chosen_cotangents)
        else:
            again = _gradients(chosen, repeated(chosen, level).shares, chosen_cotangents, tf32=False)
        for x, exact in zip(found, again, strict=False):
            x[sequences] = exact.to(x)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
    *tensors, ctx.window, ctx.tf32, ctx.floats = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output[2:])


def _gradient(
    ctx: Any, grad_readings: Tensor | None, grad_log_weight: Tensor | None, *_: None
) -> tuple[Tensor | None, ...]:
    tensors, tables = ctx.saved_tensors[:6], ctx.saved_tensors[6:]
    cotangents = given_cotangents(tensors[0], tensors[3], grad_readings, grad_log_weight)
    *logits, grad_values, grad_bottom = nondeterministic_stack_gpu_backward(
        *tensors, ctx.window, ctx.tf32, ctx.floats, *tables, *cotangents
    )
    if tensors[3] is None:
        return (*logits, None, None, None, None, None, None)
    return (*logits, grad_values, grad_bottom.sum(0), None, None, None, None)


def _by_definition(*inputs: Any) -> Outputs:
    nothing = inputs[0].new_empty(len(inputs[0]), 0)
    return *reference_readings(Arguments(*inputs[:-2])), *[nothing] * 8


def _empty(push: Tensor, replace: Tensor, pop: Tensor, values: Tensor | None, *rest: Any) -> Outputs:
    B, T, Q, S = push.shape[:4]
    C, M = Q * S, T + 1 if values is None else values.shape[2]
    tiling = tiling_of(Arguments(push, replace, pop, values, None, push, rest[2]))
    double = push.new_empty(B, T + 1, C, dtype=torch.float64)
    return (
        *(push.new_empty(B, T, Q, S, M), push.new_empty(B, T), push.new_empty(B, dtype=torch.int32)),
        *(push.new_empty(B, T, C, C), push.new_empty(B, T, C, C), push.new_empty(B, T + 1, C)),
        *(push.new_empty(tiling.table), push.new_empty(tiling.table)),
        *(double, double.new_empty(B, T + 1, C, M)),
    )


@register(
    "nondeterministic_stack_gpu",
    devices=("cpu", "cuda"),
    fake=_empty,
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
    tf32: bool,
    floats: bool,
) -> Outputs:
    """Return readings (B,T,Q,S,m), log-weights (B,T), the rung (B,) of each sequence, and the conditioned tables.

    Arguments as for the compiled kernel: contiguous, float32 or float64; without ``values`` the readings are the
    weights over positions, and m = T + 1. ``tf32`` allows products of float32 tables to be rounded. Sequences that lose
    something in the range of the tables are computed again with a larger one, in the end on the CPU; see ladder.py,
    which names the rungs. While a CUDA graph is captured, tables are doubles, and such sequences are
    NaN; or, if ``floats``, tables are floats, and the results of such sequences undefined.
    """
    given = Arguments(push, replace, pop, values, bottom, lengths, window)
    require_addressable("nondeterministic_stack", math.prod(tiling_of(given).table[1:]))
    found, rung = climb(given, tf32, floats)
    x = found.shares
    return found.readings, found.log_weight, rung, x.push, x.replace, x.factor, x.R, x.W, x.a, x.E


def readings_on_gpu(given: Arguments, tf32: bool) -> tuple[Tensor, Tensor]:
    """Return readings (B,T,Q,S,m) and log-weights (B,T).

    While a CUDA graph is captured, sequences that floats lose are computed again in doubles within the graph, and those
    that doubles lose are NaN. Arguments, errors and cost as for ``nondeterministic_stack_gpu``.
    """
    floats = capturing(given.push.device.type) and given.push.dtype == torch.float32
    if floats:  # so that gradients are accumulated where the inputs were computed, not in a lane aside
        own: dict[str, Any] = {name: x.view_as(x) for name, x in given._asdict().items() if isinstance(x, Tensor)}
        given = given._replace(**own)
    readings, log_weight, rung, *_ = nondeterministic_stack_gpu(*given, tf32, floats)
    if not floats:
        return readings, log_weight
    lost = rung != BATCH
    again = given._replace(lengths=given.lengths.where(lost, 0))
    main, aside = Lane(given.push.device), Lane(given.push.device, aside=True)
    with aside.after(main.mark()):  # where autograd adds the gradients in doubles, too, beside those in floats
        exact, exact_log_weight, *_ = nondeterministic_stack_gpu(*again, False, False)
    with main.after(aside.mark()):
        return exact.where(lost.view(-1, 1, 1, 1, 1), readings), exact_log_weight.where(lost[:, None], log_weight)
