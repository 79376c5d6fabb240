"""The superposition stack by the compiled CPU kernel."""

from typing import Any

from torch import Tensor

from structattn.operators.common.checks import checked_lengths
from structattn.operators.common.kernels import run_kernel
from structattn.operators.common.registration import refuse_double_backward, register, save_inputs
from structattn.operators.superposition_stack.reference import superposition_stack_reference


def empty_readings(actions: Tensor, values: Tensor, *_: Any) -> Tensor:
    """Allocate the readings."""
    return values.new_empty(values.shape)


def empty_gradients(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate the gradients of actions, values and initial; the third has no columns if there is no initial row."""
    grad_initial = values.new_empty(values.shape[0], 0 if initial is None else initial.shape[1])
    return actions.new_empty(actions.shape), values.new_empty(values.shape), grad_initial


@register(
    "superposition_stack_backward",
    fake=empty_gradients,
    gradient=refuse_double_backward("superposition_stack", "CPU"),
)
def superposition_stack_backward(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of actions, values and initial."""
    gradients = empty_gradients(cotangent, actions, values, lengths, initial)
    outputs = gradients if initial is not None else (*gradients[:2], None)
    tensors = (cotangent, actions, values, lengths, initial, *outputs)
    run_kernel("superposition_stack_backward", values.dtype, tensors, *values.shape)
    return gradients


def by_definition(actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None, *_: Any) -> Tensor:
    """Readings by the definition, for forward-mode differentiation."""
    lengths = checked_lengths(lengths, values.shape[0], values.shape[1], values.device)
    return superposition_stack_reference(actions, values, lengths, initial)


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
    saved = ctx.saved_tensors  # read once: activation checkpointing recomputes them on every access
    grad_actions, grad_values, grad_initial = superposition_stack_backward(cotangent, *saved)
    return grad_actions, grad_values, None, None if saved[3] is None else grad_initial


@register("superposition_stack", fake=empty_readings, gradient=_gradient, save=save_inputs, definition=by_definition)
def superposition_stack_cpu(actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None) -> Tensor:
    """Readings; arguments as for the public function, checked, float32 or float64."""
    readings = empty_readings(actions, values)
    run_kernel(
        "superposition_stack_forward", values.dtype, (actions, values, lengths, initial, readings), *values.shape
    )
    return readings
