"""Joins the kernel's two directions for autograd, as operators that torch can trace."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import compiled_kernels

Readings = tuple[Tensor, Tensor, Tensor]
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _kernels() -> Any:
    found = compiled_kernels()
    if found is None:
        raise RuntimeError("the compiled extension is not installed; the public functions check this first")
    return found[1]


def reach_of(window: int | None) -> int:
    """How many steps back a pop may reach, for the kernel: more than there can be where there is no limit."""
    return 1 << 60 if window is None else window


def table_size(time: int, states: int, symbols: int, columns: int, window: int | None) -> int:
    """Doubles that the kernel may use for one sequence: its layout with every padding at its largest.

    Plain arithmetic, so that it holds for a traced, symbolic ``time`` too; the kernel refuses a table that is too
    small.
    """
    if states > 3 or symbols > 3:
        return 8
    C = states * symbols
    row_numbers = time * (time + 31) // 2
    if window is not None:
        row_numbers = torch.sym_min(row_numbers, time * (window + 23))  # type: ignore[no-untyped-call]
    rows = states * C * (row_numbers + 16)
    by_time = (C * C + C * columns) * (time + 16) + (2 * C * (C + 8) + 2) * (time + 2)
    return 2 * rows + by_time + 128


@torch.library.custom_op("structattn::nondeterministic_stack_forward", mutates_args=())
def forward(
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
    readings, log_weight, tables = _outputs(push, replace, pop, values, bottom, lengths, window, wide)
    _kernels().nondeterministic_stack_forward(
        *(push, replace, pop, values, bottom, lengths, reach_of(window), readings, log_weight, tables),
        *(torch.get_num_threads(), wide),
    )
    return readings, log_weight, tables


@forward.register_fake
def _outputs(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    values: Tensor | None,
    bottom: Tensor | None,
    lengths: Tensor,
    window: int | None,
    wide: bool,
) -> Readings:
    B, T, Q, S = push.shape[:4]
    columns = T + 1 if values is None else values.shape[2]
    return (
        push.new_empty(B, T, Q, S, columns),
        push.new_empty(B, T),
        push.new_empty(B, table_size(T, Q, S, columns, window), dtype=torch.float64),
    )


@torch.library.custom_op("structattn::nondeterministic_stack_backward", mutates_args=())
def backward(
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
    result = _gradients(push, replace, pop, values, bottom, lengths, window, tables, grad_readings, grad_log_weight)
    of_values = (None, None) if values is None else result[3:]
    _kernels().nondeterministic_stack_backward(
        *(push, replace, pop, values, bottom, lengths, reach_of(window), tables, grad_readings, grad_log_weight),
        *(*result[:3], *of_values, torch.get_num_threads()),
    )
    return result  # type: ignore[no-any-return]  # the fake kernel's decorator forgets its types


@backward.register_fake
def _gradients(
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
    B, m = push.shape[0], 0 if values is None else values.shape[2]
    of_values = push.new_empty(0, 0, 0) if values is None else torch.empty_like(values)
    return torch.empty_like(push), torch.empty_like(replace), torch.empty_like(pop), of_values, push.new_empty(B, m)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Readings) -> None:
    push, replace, pop, values, bottom, lengths, ctx.window, _ = inputs
    ctx.mark_non_differentiable(output[2])
    ctx.has_values = values is not None
    optional = (values, bottom) if ctx.has_values else ()
    ctx.save_for_backward(push, replace, pop, lengths, output[2], *optional)


def _back(ctx: Any, grad_readings: Tensor, grad_log_weight: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    push, replace, pop, lengths, tables, *optional = ctx.saved_tensors
    values, bottom = optional if ctx.has_values else (None, None)
    *logits, grad_values, grad_bottom = backward(
        *(push, replace, pop, values, bottom, lengths, ctx.window, tables),
        *(grad_readings.contiguous(), grad_log_weight.contiguous()),
    )
    if not ctx.has_values:
        return (*logits, None, None, None, None, None)
    return (*logits, grad_values, grad_bottom.sum(0), None, None, None)


def _refuse(ctx: Any, *_: Tensor) -> None:
    raise NotImplementedError(
        "nondeterministic_stack has no second derivative in its kernel; implementation='reference' has one"
    )


forward.register_autograd(_back, setup_context=_save)
backward.register_autograd(_refuse)


@torch.library.custom_op("structattn::nondeterministic_stack_best_run", mutates_args=())
def best_run(
    push: Tensor, replace: Tensor, pop: Tensor, lengths: Tensor, window: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Actions, states and symbols (B,T) int64, zero past the end, and the run's log-weight (B,)."""
    actions, states, symbols, log_weight = _best_run_outputs(push, replace, pop, lengths, window)
    for x in (actions, states, symbols):
        x.zero_()
    _kernels().nondeterministic_stack_best_run(
        *(push, replace, pop, lengths, reach_of(window), actions, states, symbols, log_weight, torch.get_num_threads())
    )
    return actions, states, symbols, log_weight


@best_run.register_fake
def _best_run_outputs(
    push: Tensor, replace: Tensor, pop: Tensor, lengths: Tensor, window: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B, T = push.shape[:2]
    actions, states, symbols = (push.new_empty(B, T, dtype=torch.int64) for _ in range(3))
    return actions, states, symbols, push.new_empty(B)
