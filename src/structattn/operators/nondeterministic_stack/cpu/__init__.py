"""The nondeterministic stack by the compiled CPU kernels."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import contiguous, kernel_module
from structattn.operators.common.registration import Batching, refuse_double_backward, register
from structattn.operators.nondeterministic_stack.arguments import (
    Arguments,
    Gradients,
    empty_gradients,
    given_cotangents,
)
from structattn.operators.nondeterministic_stack.reference import reference_readings

Readings = tuple[Tensor, Tensor, Tensor]
BestRun = tuple[Tensor, Tensor, Tensor, Tensor]
OptionalGradients = tuple[Tensor | None, ...]


def kernel_window(window: int | None) -> int:
    """Return the window as the kernel takes it: more steps than there can be for None."""
    return 1 << 60 if window is None else window


def table_size(time: int, states: int, symbols: int, columns: int, window: int | None) -> int:
    """Return how many doubles the kernel may use for one sequence: its layout with every padding at its largest.

    Plain arithmetic, so that it holds for a traced, symbolic ``time`` too; the kernel refuses a table that is too
    small.
    """
    if states > 3 or symbols > 3:
        return 8
    C = states * symbols
    row_numbers = (time + 15) * (time + 31) // 2
    if window is not None:
        row_numbers = torch.sym_min(row_numbers, (time + 15) * (window + 23))  # type: ignore[no-untyped-call]  # torch's
    rows = states * C * (row_numbers + 16)
    by_time = (C * C + C * columns) * (time + 16) + (2 * C * (C + 8) + 2) * (time + 2)
    return (2 * rows + by_time + 128) // 8 * 8  # keeps every sequence's table aligned to cache lines


@register(
    "nondeterministic_stack_backward",
    fake=empty_gradients,
    batching=Batching(shared=("bottom",)),
    gradient=refuse_double_backward("nondeterministic_stack", "CPU"),
)
def nondeterministic_stack_backward(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    values: Tensor | None,
    bottom: Tensor | None,
    lengths: Tensor,
    window: int | None,
    tables: Tensor,
    grad_readings: Tensor,
    grad_log_weight: Tensor,
) -> Gradients:
    """Gradients of push, replace, pop, values (B,T,m) and, for each sequence, bottom (B,m)."""
    gradients = empty_gradients(push, replace, pop, values)
    optional = (None, None) if values is None else gradients[3:]
    kernel_module().nondeterministic_stack_backward(
        *contiguous(push, replace, pop, values, bottom, lengths),
        kernel_window(window),
        *contiguous(tables, grad_readings, grad_log_weight),
        *(*gradients[:3], *optional, torch.get_num_threads()),
    )
    return gradients


def _save(ctx: Any, inputs: tuple[Any, ...], output: Readings) -> None:
    *tensors, ctx.window, _ = inputs
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[2])


def _gradient(ctx: Any, grad_readings: Tensor | None, grad_log_weight: Tensor | None, _: None) -> OptionalGradients:
    *tensors, tables = ctx.saved_tensors
    cotangents = given_cotangents(tensors[0], tensors[3], grad_readings, grad_log_weight)
    *logits, grad_values, grad_bottom = nondeterministic_stack_backward(*tensors, ctx.window, tables, *cotangents)
    if tensors[3] is None:
        return (*logits, None, None, None, None, None)
    return (*logits, grad_values, grad_bottom.sum(0), None, None, None)


def _by_definition(push: Tensor, *rest: Any) -> Readings:
    *others, _ = rest
    return *reference_readings(Arguments(push, *others)), push.new_empty(push.shape[0], 0)  # no tables


def _empty_readings(push: Tensor, replace: Tensor, pop: Tensor, values: Tensor | None, *rest: Any) -> Readings:
    _, _, window, _ = rest
    B, T, Q, S = push.shape[:4]
    columns = T + 1 if values is None else values.shape[2]
    return (
        push.new_empty(B, T, Q, S, columns),
        push.new_empty(B, T),
        push.new_empty(B, table_size(T, Q, S, columns, window), dtype=torch.float64),
    )


@register(
    "nondeterministic_stack",
    fake=_empty_readings,
    gradient=_gradient,
    save=_save,
    definition=_by_definition,
    batching=Batching(shared=("bottom",)),
)
def nondeterministic_stack_cpu(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    values: Tensor | None,
    bottom: Tensor | None,
    lengths: Tensor,
    window: int | None,
    wide: bool,
) -> Readings:
    """Readings (B,T,Q,S,m), log-weights (B,T), and the tables that the backward pass needs.

    Without ``values`` the readings are the weights over positions, and m = T + 1. ``wide`` takes the arithmetic of
    unlimited range for every sequence.
    """
    readings, log_weight, tables = _empty_readings(push, replace, pop, values, bottom, lengths, window, wide)
    kernel_module().nondeterministic_stack_forward(
        *contiguous(push, replace, pop, values, bottom, lengths),
        *(kernel_window(window), readings, log_weight, tables, torch.get_num_threads(), wide),
    )
    return readings, log_weight, tables


def _empty_best_run(push: Tensor, replace: Tensor, pop: Tensor, lengths: Tensor, window: int | None) -> BestRun:
    B, T = push.shape[:2]
    actions, states, symbols = (push.new_zeros(B, T, dtype=torch.int64) for _ in range(3))
    return actions, states, symbols, push.new_empty(B)


@register("nondeterministic_stack_best_run", fake=_empty_best_run)
def nondeterministic_stack_best_run_cpu(
    push: Tensor, replace: Tensor, pop: Tensor, lengths: Tensor, window: int | None
) -> BestRun:
    """Actions, states and symbols (B,T) int64, zero past the end, and the run's log-weight (B,); not differentiable."""
    results = _empty_best_run(push, replace, pop, lengths, window)
    kernel_module().nondeterministic_stack_best_run(
        *contiguous(push, replace, pop, lengths), kernel_window(window), *results, torch.get_num_threads()
    )
    return results
