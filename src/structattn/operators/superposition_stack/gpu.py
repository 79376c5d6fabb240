"""The superposition stack's Triton kernels as a torch operator with its gradient."""

import math
from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.gpu import gpu_kernels, launch, power_of_two
from structattn.operators.superposition_stack import gradient

_FORWARD = "structattn::superposition_stack_gpu"
_BACKWARD = "structattn::superposition_stack_gpu_backward"
_LANES = 1024  # numbers of a tile: the rows and columns that a program works on at once

torch.library.define(_FORWARD, "(Tensor actions, Tensor values, Tensor lengths, Tensor? initial) -> Tensor")
torch.library.define(
    _BACKWARD,
    "(Tensor cotangent, Tensor actions, Tensor values, Tensor lengths, Tensor? initial) -> (Tensor, Tensor, Tensor)",
)


def superposition_stack_gpu_op(actions: Tensor, values: Tensor, lengths: Tensor, initial: Tensor | None) -> Tensor:
    """Readings by the Triton kernel; arguments as for the public function, checked, float32 or float64."""
    readings: Tensor = torch.ops.structattn.superposition_stack_gpu(actions, values, lengths, initial)
    return readings


def _tiles(values: Tensor, initial: Tensor | None) -> tuple[int, dict[str, int]]:
    """How many tiles the columns make, and the kernel's constants."""
    _, time, columns = values.shape
    width = power_of_two(columns, 16)
    rows = power_of_two((time + 1) // 2, _LANES // width)
    return -(-columns // width), {"W": width, "ROWS": rows, "FULL": initial is not None}


@torch.library.impl(_FORWARD, ("cpu", "cuda"))
def _forward(actions: Tensor, values: Tensor, lengths: Tensor, initial: Tensor | None) -> Tensor:
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
    kernel = gpu_kernels("superposition_stack").forward
    launch(kernel, (batch, tiles), (*given, readings, scratch), time, columns, **constants)
    return readings


@torch.library.impl(_BACKWARD, ("cpu", "cuda"))
def _backward(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor, initial: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, columns = values.shape
    tiles, constants = _tiles(values, initial)
    block = max(math.isqrt(time), 1)  # steps whose stacks are kept at once, beside those at each block's start
    blocks = -(-time // block)
    size = ((time + 1) // 2 + 1) * constants["W"]
    room = (4 + blocks + block) * size + (time + 1) * constants["W"]
    scratch = values.new_empty(batch * tiles * room, dtype=torch.float64)
    products = values.new_zeros((batch, tiles, time, 3), dtype=torch.float64)
    grad_values = values.new_zeros(values.shape)
    grad_initial = values.new_zeros((0,) if initial is None else initial.shape)
    below = values if initial is None else initial.contiguous()
    given = cotangent.contiguous(), actions.contiguous(), values.contiguous(), lengths.contiguous(), below
    launch(
        gpu_kernels("superposition_stack").backward,
        (batch, tiles),
        (*given, products, grad_values, grad_initial, scratch),
        *(time, columns, block, blocks),
        **constants,
    )
    return products.sum(1).to(actions.dtype), grad_values, grad_initial


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
    saved = ctx.saved_tensors
    gradients = torch.ops.structattn.superposition_stack_gpu_backward(cotangent, *saved)
    return *gradients[:2], None, None if saved[3] is None else gradients[2]


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError(
        "superposition_stack: the Triton kernel has no second derivative; implementation='reference' has"
    )


torch.library.register_fake(_FORWARD, gradient.fake_forward)
torch.library.register_fake(_BACKWARD, gradient.fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_inputs)
torch.library.register_autograd(_BACKWARD, _refuse_second_gradient)
