"""The stratified stack by the compiled CPU kernel."""

from typing import Any

from torch import Tensor

from structattn.operators.common.checks import checked_lengths
from structattn.operators.common.kernels import run_kernel
from structattn.operators.common.registration import refuse_double_backward, register, save_inputs
from structattn.operators.stratified_stack.reference import stratified_stack_reference


def empty_readings(actions: Tensor, values: Tensor, *_: Any) -> Tensor:
    """Allocate the readings."""
    return values.new_empty(values.shape)


def empty_gradients(cotangent: Tensor, actions: Tensor, values: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Allocate the gradients of actions and values."""
    return actions.new_empty(actions.shape), values.new_empty(values.shape)


@register("stratified_stack_backward", fake=empty_gradients, gradient=refuse_double_backward("stratified_stack", "CPU"))
def stratified_stack_backward(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients of actions and values."""
    gradients = empty_gradients(cotangent, actions, values)
    tensors = (cotangent, actions, values, lengths, *gradients)
    run_kernel("stratified_stack_backward", values.dtype, tensors, *values.shape)
    return gradients


def _by_definition(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    lengths = checked_lengths(lengths, values.shape[0], values.shape[1], values.device)
    return stratified_stack_reference(actions, values, lengths)


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
    saved = ctx.saved_tensors  # read once: activation checkpointing recomputes them on every access
    return *stratified_stack_backward(cotangent, *saved), None


@register("stratified_stack", fake=empty_readings, gradient=_gradient, save=save_inputs, definition=_by_definition)
def stratified_stack_cpu(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """Readings; arguments as for the public function, checked, float32 or float64."""
    readings = empty_readings(actions, values)
    run_kernel("stratified_stack_forward", values.dtype, (actions, values, lengths, readings), *values.shape)
    return readings
