"""The superposition stack by Triton kernels."""

from typing import Any

from torch import Tensor

from structattn.operators.common.registration import refuse_double_backward, register, save_inputs_and_flag
from structattn.operators.superposition_stack.cpu import by_definition, empty_gradients, empty_readings
from structattn.operators.superposition_stack.gpu.by_map import gradients_by_map, map_is_cheaper, readings_by_map
from structattn.operators.superposition_stack.gpu.chunks import Chunks, gradients_in_chunks, readings_in_chunks


@register(
    "superposition_stack_gpu_backward",
    devices=("cpu", "cuda"),
    fake=empty_gradients,
    gradient=refuse_double_backward("superposition_stack", "GPU"),
)
def superposition_stack_gpu_backward(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor, initial: Tensor | None, tf32: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of actions, values and initial."""
    gradients = gradients_by_map if map_is_cheaper(*values.shape[1:]) else gradients_in_chunks
    return gradients(Chunks.of(actions, values, lengths, initial, tf32), cotangent.contiguous())


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None, None]:
    saved = ctx.saved_tensors  # read once: activation checkpointing recomputes them on every access
    grad_actions, grad_values, grad_initial = superposition_stack_gpu_backward(cotangent, *saved, ctx.flag)
    return grad_actions, grad_values, None, None if saved[3] is None else grad_initial, None


@register(
    "superposition_stack_gpu",
    devices=("cpu", "cuda"),
    fake=empty_readings,
    gradient=_gradient,
    save=save_inputs_and_flag,
    definition=by_definition,
)
def superposition_stack_gpu(
    actions: Tensor, values: Tensor, lengths: Tensor, initial: Tensor | None, tf32: bool
) -> Tensor:
    """Readings; arguments as for the public function, checked, float32 or float64; ``tf32`` from ``tf32_allowed``."""
    readings = readings_by_map if map_is_cheaper(*values.shape[1:]) else readings_in_chunks
    return readings(Chunks.of(actions, values, lengths, initial, tf32))
