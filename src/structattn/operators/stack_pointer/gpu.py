"""Stack pointer attention by Triton kernels."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.common.gpu import tf32_allowed
from structattn.operators.common.registration import refuse_double_backward, register
from structattn.operators.common.stack_contents import weighted_sum
from structattn.operators.stack_pointer.cpu import empty_map, empty_map_gradient, map_by_definition, map_is_cheaper
from structattn.operators.superposition_stack.gpu import superposition_stack_gpu
from structattn.operators.superposition_stack.gpu.chunks import Chunks, gradients_in_chunks, readings_in_chunks


def readings_on_gpu(actions: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Readings by the cheaper way: the map and a matrix product, or a stack filled with the empty stack's value."""
    time, tf32 = actions.shape[1], tf32_allowed(actions.device)
    if not map_is_cheaper(time, values.shape[2]):
        return superposition_stack_gpu(actions, values[:, 1:], lengths, values[:, 0], tf32)
    weights, here = stack_pointer_gpu_map(actions, lengths, tf32), inside(lengths, time)[..., None]
    values = torch.where(torch.cat([lengths[:, None, None] > 0, here], 1), values, 0)
    visible = torch.ones(time, time + 1, dtype=torch.bool, device=values.device).tril(1)
    with torch.autocast(actions.device.type, enabled=False):  # it would multiply in half precision
        readings = weighted_sum(weights, visible, values)
    return torch.where(here, readings, 0)


@register(
    "stack_pointer_gpu_map_backward",
    devices=("cpu", "cuda"),
    fake=empty_map_gradient,
    gradient=refuse_double_backward("stack_pointer", "GPU"),
)
def stack_pointer_gpu_map_backward(cotangent: Tensor, actions: Tensor, lengths: Tensor, tf32: bool) -> Tensor:
    """Gradient of the actions."""
    return gradients_in_chunks(Chunks.of(actions, None, lengths, None, tf32), cotangent.contiguous())[0]


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None, None]:
    return stack_pointer_gpu_map_backward(cotangent, *ctx.saved_tensors, ctx.tf32), None, None


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
    *tensors, ctx.tf32 = inputs
    ctx.save_for_backward(*tensors)


def _by_definition(actions: Tensor, lengths: Tensor, tf32: bool) -> Tensor:
    return map_by_definition(actions, lengths)


@register(
    "stack_pointer_gpu_map",
    devices=("cpu", "cuda"),
    fake=empty_map,
    gradient=_gradient,
    save=_save,
    definition=_by_definition,
)
def stack_pointer_gpu_map(actions: Tensor, lengths: Tensor, tf32: bool) -> Tensor:
    """The map (B, T, T+1); ``actions`` checked, float32 or float64; ``tf32`` as for ``superposition_stack_gpu``."""
    return readings_in_chunks(Chunks.of(actions, None, lengths, None, tf32))
