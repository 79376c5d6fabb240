"""The map of stack pointer attention by Triton kernels."""

from typing import Any

from torch import Tensor

from structattn.operators.common.registration import refuse_double_backward, register, save_inputs_and_flag
from structattn.operators.stack_pointer.cpu import empty_map, empty_map_gradient, map_by_definition
from structattn.operators.superposition_stack.gpu.chunks import Chunks, gradients_in_chunks, readings_in_chunks


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
    return stack_pointer_gpu_map_backward(cotangent, *ctx.saved_tensors, ctx.flag), None, None


@register(
    "stack_pointer_gpu_map",
    devices=("cpu", "cuda"),
    fake=empty_map,
    gradient=_gradient,
    save=save_inputs_and_flag,
    definition=map_by_definition,
)
def stack_pointer_gpu_map(actions: Tensor, lengths: Tensor, tf32: bool) -> Tensor:
    """The map (B, T, T+1); ``actions`` checked, float32 or float64; ``tf32`` as for ``superposition_stack_gpu``."""
    return readings_in_chunks(Chunks.of(actions, None, lengths, None, tf32))
