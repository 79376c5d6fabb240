"""Stack pointer attention by Triton kernels."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.common.gpu import gpu_kernels, launch, power_of_two, require_addressable
from structattn.operators.common.registration import refuse_double_backward, register
from structattn.operators.common.stack_contents import weighted_sum
from structattn.operators.stack_pointer.cpu import (
    empty_map,
    empty_map_gradient,
    map_by_definition,
    map_is_cheaper,
    save_map,
)
from structattn.operators.superposition_stack.gpu import superposition_stack_gpu


def readings_on_gpu(actions: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Readings by the cheaper way: the map and a matrix product, or a stack filled with the empty stack's value."""
    time = actions.shape[1]
    if not map_is_cheaper(time, values.shape[2]):
        return superposition_stack_gpu(actions, values[:, 1:], lengths, values[:, 0])
    weights, here = stack_pointer_gpu_map(actions, lengths), inside(lengths, time)[..., None]
    values = torch.where(torch.cat([lengths[:, None, None] > 0, here], 1), values, 0)
    visible = torch.ones(time, time + 1, dtype=torch.bool, device=values.device).tril(1)
    with torch.autocast(actions.device.type, enabled=False):  # it would multiply in half precision
        readings = weighted_sum(weights, visible, values)
    return torch.where(here, readings, 0)


def _constants(time: int) -> dict[str, int]:
    """Return compile-time sizes: a tile of J rows of the map by N of its columns."""
    return {"J": power_of_two(time, 32), "N": power_of_two(time + 1, 64), "num_warps": 8}


@register(
    "stack_pointer_gpu_map_backward",
    devices=("cpu", "cuda"),
    fake=empty_map_gradient,
    gradient=refuse_double_backward("stack_pointer", "GPU"),
)
def stack_pointer_gpu_map_backward(cotangent: Tensor, actions: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """Gradient of the actions."""
    batch, time, _ = actions.shape
    result = actions.new_zeros(actions.shape)
    scratch = actions.new_empty(batch * (time + 2) * (time + 1), dtype=torch.float64)
    tensors = cotangent.contiguous(), actions.contiguous(), weights.contiguous(), lengths.contiguous(), result, scratch
    launch(gpu_kernels("stack_pointer.gpu_kernel").backward, (batch,), tensors, time, **_constants(time))
    return result


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
    return stack_pointer_gpu_map_backward(cotangent, *ctx.saved_tensors), None


@register(
    "stack_pointer_gpu_map",
    devices=("cpu", "cuda"),
    fake=empty_map,
    gradient=_gradient,
    save=save_map,
    definition=map_by_definition,
)
def stack_pointer_gpu_map(actions: Tensor, lengths: Tensor) -> Tensor:
    """The map (B, T, T+1); ``actions`` checked, float32 or float64."""
    batch, time, _ = actions.shape
    require_addressable("stack_pointer", (time + 2) * (time + 1))
    weights = actions.new_zeros(batch, time, time + 1)
    scratch = actions.new_empty(batch * (time + 1) ** 2, dtype=torch.float64)
    tensors = actions.contiguous(), lengths.contiguous(), weights, scratch
    launch(gpu_kernels("stack_pointer.gpu_kernel").forward, (batch,), tensors, time, **_constants(time))
    return weights
