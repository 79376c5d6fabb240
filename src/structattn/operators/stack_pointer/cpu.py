"""Stack pointer attention by compiled CPU kernels: the map, its product with the values, or a stack of values."""

from typing import Any

from torch import Tensor

from structattn.operators.common.checks import checked_lengths
from structattn.operators.common.kernels import run_kernel
from structattn.operators.common.registration import refuse_double_backward, register, save_inputs
from structattn.operators.stack_pointer.reference import (
    stack_pointer_readings_reference,
    stack_pointer_weights_reference,
)
from structattn.operators.superposition_stack.cpu import superposition_stack_cpu


def map_is_cheaper(steps: int, width: int) -> bool:
    """Whether n^3 / 2 + 3 n^2 d / 2 multiply-adds by the map are done before 3 n^2 d slower ones by a stack of values.

    Measured for forward and backward on a processor with vectors of 512 bits, for widths from 16 to 256.
    """
    return steps <= 3 * width


def readings_by_map(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """Compute the map, then its product with the values."""
    return stack_pointer_product(stack_pointer_map(actions, lengths), values, lengths)


def readings_by_stack(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """Read the top of a superposition stack whose every initial row is the value of the empty stack."""
    return superposition_stack_cpu(actions, values[:, 1:], lengths, values[:, 0])


def empty_map(actions: Tensor, *_: Any) -> Tensor:
    """Allocate the map."""
    batch, time = actions.shape[:2]
    return actions.new_empty(batch, time, time + 1)


def empty_map_gradient(cotangent: Tensor, actions: Tensor, *_: Any) -> Tensor:
    """Allocate the gradient of the actions."""
    return actions.new_empty(actions.shape)


def save_map(ctx: Any, inputs: tuple[Tensor, Tensor | None], output: Tensor) -> None:
    """Save the actions, the map and the lengths."""
    actions, lengths = inputs
    ctx.save_for_backward(actions, output, lengths)


@register(
    "stack_pointer_map_backward", fake=empty_map_gradient, gradient=refuse_double_backward("stack_pointer", "CPU")
)
def stack_pointer_map_backward(cotangent: Tensor, actions: Tensor, weights: Tensor, lengths: Tensor | None) -> Tensor:
    """Gradient of the actions."""
    gradient = empty_map_gradient(cotangent, actions)
    tensors = (cotangent, actions, weights, lengths, gradient)
    run_kernel("stack_pointer_map_backward", actions.dtype, tensors, *actions.shape[:2])
    return gradient


def map_by_definition(actions: Tensor, lengths: Tensor | None, *_: Any) -> Tensor:
    """The map by the definition, for forward-mode differentiation."""
    lengths = checked_lengths(lengths, actions.shape[0], actions.shape[1], actions.device)
    return stack_pointer_weights_reference(actions, lengths)


def _map_gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
    return stack_pointer_map_backward(cotangent, *ctx.saved_tensors), None


@register("stack_pointer_map", fake=empty_map, gradient=_map_gradient, save=save_map, definition=map_by_definition)
def stack_pointer_map(actions: Tensor, lengths: Tensor | None) -> Tensor:
    """The map (B, T, T+1); ``actions`` checked, float32 or float64."""
    weights = empty_map(actions)
    run_kernel("stack_pointer_map_forward", actions.dtype, (actions, lengths, weights), *actions.shape[:2])
    return weights


def _empty_product(weights: Tensor, values: Tensor, *_: Any) -> Tensor:
    return values.new_empty(*weights.shape[:2], values.shape[2])


def _empty_product_gradients(cotangent: Tensor, weights: Tensor, values: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return weights.new_empty(weights.shape), values.new_empty(values.shape)


@register(
    "stack_pointer_product_backward",
    fake=_empty_product_gradients,
    gradient=refuse_double_backward("stack_pointer", "CPU"),
)
def stack_pointer_product_backward(
    cotangent: Tensor, weights: Tensor, values: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients of weights and values."""
    gradients = _empty_product_gradients(cotangent, weights, values)
    tensors = (cotangent, weights, values, lengths, *gradients)
    run_kernel("stack_pointer_product_backward", cotangent.dtype, tensors, *cotangent.shape)
    return gradients


def _product_by_definition(weights: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    lengths = checked_lengths(lengths, weights.shape[0], weights.shape[1], values.device)
    return stack_pointer_readings_reference(weights, values, lengths)


def _product_gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
    return *stack_pointer_product_backward(cotangent, *ctx.saved_tensors), None


@register(
    "stack_pointer_product",
    fake=_empty_product,
    gradient=_product_gradient,
    save=save_inputs,
    definition=_product_by_definition,
)
def stack_pointer_product(weights: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """reading_t = sum_{n <= t} weights[t, n] values_n; entries at n > t are not read."""
    readings = _empty_product(weights, values)
    run_kernel("stack_pointer_product_forward", weights.dtype, (weights, values, lengths, readings), *readings.shape)
    return readings
