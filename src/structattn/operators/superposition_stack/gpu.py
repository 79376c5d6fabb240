"""The superposition stack by Triton kernels."""

import math
from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.gpu import gpu_kernels, launch, power_of_two
from structattn.operators.common.registration import refuse_double_backward, register, save_inputs
from structattn.operators.superposition_stack.cpu import by_definition, empty_gradients, empty_readings

_LANES = 1024  # numbers of a tile: the rows and columns that a program works on at once


def _tiles(values: Tensor, initial: Tensor | None) -> tuple[int, dict[str, int]]:
    """Return the number of tiles of the columns, and the kernel's constants."""
    _, time, columns = values.shape
    width = power_of_two(columns, 16)
    rows = power_of_two((time + 1) // 2, _LANES // width)
    return -(-columns // width), {"W": width, "ROWS": rows, "FULL": initial is not None}


@register(
    "superposition_stack_gpu_backward",
    devices=("cpu", "cuda"),
    fake=empty_gradients,
    gradient=refuse_double_backward("superposition_stack", "GPU"),
)
def superposition_stack_gpu_backward(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor, initial: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of actions, values and initial."""
    batch, time, columns = values.shape
    tiles, constants = _tiles(values, initial)
    block = max(math.isqrt(time), 1)  # steps whose stacks are stored, in addition to those at the start of each block
    blocks = -(-time // block)
    size = ((time + 1) // 2 + 1) * constants["W"]
    room = (4 + blocks + block) * size + (time + 1) * constants["W"]
    scratch = values.new_empty(batch * tiles * room, dtype=torch.float64)
    products = values.new_zeros((batch, tiles, time, 3), dtype=torch.float64)
    grad_values = values.new_zeros(values.shape)
    grad_initial = values.new_zeros(batch, 0 if initial is None else columns)
    below = values if initial is None else initial.contiguous()
    given = cotangent.contiguous(), actions.contiguous(), values.contiguous(), lengths.contiguous(), below
    launch(
        gpu_kernels("superposition_stack.gpu_kernel").backward,
        (batch, tiles),
        (*given, products, grad_values, grad_initial, scratch),
        *(time, columns, block, blocks),
        **constants,
    )
    return products.sum(1).to(actions.dtype), grad_values, grad_initial


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
    saved = ctx.saved_tensors
    grad_actions, grad_values, grad_initial = superposition_stack_gpu_backward(cotangent, *saved)
    return grad_actions, grad_values, None, None if saved[3] is None else grad_initial


@register(
    "superposition_stack_gpu",
    devices=("cpu", "cuda"),
    fake=empty_readings,
    gradient=_gradient,
    save=save_inputs,
    definition=by_definition,
)
def superposition_stack_gpu(actions: Tensor, values: Tensor, lengths: Tensor, initial: Tensor | None) -> Tensor:
    """Readings; arguments as for the public function, checked, float32 or float64."""
    batch, time, columns = values.shape
    readings = values.new_zeros(values.shape)
    tiles, constants = _tiles(values, initial)
    size = ((time + 1) // 2 + 1) * constants["W"]
    scratch = values.new_empty(batch * tiles * 2 * size, dtype=torch.float64)
    given = (
        actions.contiguous(),
        values.contiguous(),
        lengths.contiguous(),
        values if initial is None else initial.contiguous(),
    )
    kernel = gpu_kernels("superposition_stack.gpu_kernel").forward
    launch(kernel, (batch, tiles), (*given, readings, scratch), time, columns, **constants)
    return readings
