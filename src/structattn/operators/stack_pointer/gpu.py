"""The Triton kernels of the map as a torch operator with its gradient, and the readings on a GPU."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.common.gpu import gpu_kernels, launch, power_of_two, require_addressable
from structattn.operators.common.weighted_sum import weighted_sum
from structattn.operators.stack_pointer import gradient
from structattn.operators.stack_pointer.readings import map_is_cheaper
from structattn.operators.superposition_stack.gpu import superposition_stack_gpu_op

_MAP, _MAP_BACKWARD = "structattn::stack_pointer_gpu_map", "structattn::stack_pointer_gpu_map_backward"

torch.library.define(_MAP, "(Tensor actions, Tensor lengths) -> Tensor")
torch.library.define(_MAP_BACKWARD, "(Tensor cotangent, Tensor actions, Tensor weights, Tensor lengths) -> Tensor")


def stack_pointer_gpu_map_op(actions: Tensor, lengths: Tensor) -> Tensor:
    """The map (B, T, T+1) by the Triton kernel; ``actions`` checked, float32 or float64."""
    weights: Tensor = torch.ops.structattn.stack_pointer_gpu_map(actions, lengths)
    return weights


def readings_on_gpu(actions: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """The cheaper of the two ways: the map and a matrix product, or the stack full of the empty stack's value."""
    time = actions.shape[1]
    if not map_is_cheaper(time, values.shape[2]):
        return superposition_stack_gpu_op(actions, values[:, 1:], lengths, values[:, 0])
    weights, here = stack_pointer_gpu_map_op(actions, lengths), inside(lengths, time)[..., None]
    values = torch.where(torch.cat([lengths[:, None, None] > 0, here], 1), values, 0)
    visible = torch.ones(time, time + 1, dtype=torch.bool, device=values.device).tril(1)
    with torch.autocast(actions.device.type, enabled=False):  # it would multiply in half precision
        readings = weighted_sum(weights, visible, values)
    return torch.where(here, readings, 0)


def _constants(time: int) -> dict[str, int]:
    return {"J": power_of_two(time, 32), "N": power_of_two(time + 1, 64), "num_warps": 8}


@torch.library.impl(_MAP, ("cpu", "cuda"))
def _map(actions: Tensor, lengths: Tensor) -> Tensor:
    batch, time, _ = actions.shape
    require_addressable("stack_pointer", (time + 2) * (time + 1))
    weights = actions.new_zeros(batch, time, time + 1)
    scratch = actions.new_empty(batch * (time + 1) ** 2, dtype=torch.float64)
    tensors = actions.contiguous(), lengths.contiguous(), weights, scratch
    launch(gpu_kernels("stack_pointer").forward, (batch,), tensors, time, **_constants(time))
    return weights


@torch.library.impl(_MAP_BACKWARD, ("cpu", "cuda"))
def _map_backward(cotangent: Tensor, actions: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    batch, time, _ = actions.shape
    result = actions.new_zeros(actions.shape)
    scratch = actions.new_empty(batch * (time + 2) * (time + 1), dtype=torch.float64)
    tensors = cotangent.contiguous(), actions.contiguous(), weights.contiguous(), lengths.contiguous(), result, scratch
    launch(gpu_kernels("stack_pointer").backward, (batch,), tensors, time, **_constants(time))
    return result


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    actions, lengths = inputs
    ctx.save_for_backward(actions, output, lengths)


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
    return torch.ops.structattn.stack_pointer_gpu_map_backward(cotangent, *ctx.saved_tensors), None


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError(
        "stack_pointer: the Triton kernels have no second derivative; implementation='reference' has"
    )


torch.library.register_fake(_MAP, gradient.fake_map)
torch.library.register_fake(_MAP_BACKWARD, gradient.fake_map_backward)
torch.library.register_autograd(_MAP, _gradient, setup_context=_save)
torch.library.register_autograd(_MAP_BACKWARD, _refuse_second_gradient)
