"""The compiled kernels as torch operators with their gradients: the map, and its product with the values."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import kernel_for

_MAP, _MAP_BACKWARD = "structattn::stack_pointer_map", "structattn::stack_pointer_map_backward"
_PRODUCT, _PRODUCT_BACKWARD = "structattn::stack_pointer_product", "structattn::stack_pointer_product_backward"

# Defined by schema, not by the custom_op decorator, which adds 60 µs to every pass.
torch.library.define(_MAP, "(Tensor actions, Tensor? lengths) -> Tensor")
torch.library.define(_MAP_BACKWARD, "(Tensor cotangent, Tensor actions, Tensor weights, Tensor? lengths) -> Tensor")
torch.library.define(_PRODUCT, "(Tensor weights, Tensor values, Tensor? lengths) -> Tensor")
torch.library.define(
    _PRODUCT_BACKWARD, "(Tensor cotangent, Tensor weights, Tensor values, Tensor? lengths) -> (Tensor, Tensor)"
)


def stack_pointer_map_op(actions: Tensor, lengths: Tensor | None) -> Tensor:
    """The map (B, T, T+1) by the compiled kernel; ``actions`` checked, float32 or float64, on a CPU."""
    weights: Tensor = torch.ops.structattn.stack_pointer_map(actions, lengths)
    return weights


def stack_pointer_product_op(weights: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """reading_t = sum_{n <= t} weights[t, n] values_n by the compiled kernel; what lies at n > t is not read."""
    readings: Tensor = torch.ops.structattn.stack_pointer_product(weights, values, lengths)
    return readings


def _run(kernel: str, tensors: list[Tensor | None], *sizes: int) -> None:
    """Give a kernel the addresses of contiguous tensors, the first of which tells the dtype, and the sizes."""
    assert tensors[0] is not None
    _, function = kernel_for(f"stack_pointer_{kernel}", tensors[0].dtype)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    function(*addresses, *sizes, torch.get_num_threads())


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


@torch.library.impl(_MAP, "cpu")
def _map(actions: Tensor, lengths: Tensor | None) -> Tensor:
    weights = fake_map(actions, lengths)
    _run("map_forward", [*_contiguous(actions, lengths), weights], *actions.shape[:2])
    return weights


@torch.library.impl(_MAP_BACKWARD, "cpu")
def _map_backward(cotangent: Tensor, actions: Tensor, weights: Tensor, lengths: Tensor | None) -> Tensor:
    gradient = fake_map_backward(cotangent, actions, weights, lengths)
    _run("map_backward", [*_contiguous(cotangent, actions, weights, lengths), gradient], *actions.shape[:2])
    return gradient


@torch.library.impl(_PRODUCT, "cpu")
def _product(weights: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    readings = _fake_product(weights, values, lengths)
    _run("product_forward", [*_contiguous(weights, values, lengths), readings], *readings.shape)
    return readings


@torch.library.impl(_PRODUCT_BACKWARD, "cpu")
def _product_backward(
    cotangent: Tensor, weights: Tensor, values: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    gradients = _fake_product_backward(cotangent, weights, values, lengths)
    _run("product_backward", [*_contiguous(cotangent, weights, values, lengths), *gradients], *cotangent.shape)
    return gradients


def fake_map(actions: Tensor, lengths: Tensor | None) -> Tensor:
    """A map as yet unwritten."""
    batch, time, _ = actions.shape
    return actions.new_empty(batch, time, time + 1)


def fake_map_backward(cotangent: Tensor, actions: Tensor, weights: Tensor, lengths: Tensor | None) -> Tensor:
    """The gradient of the actions, as yet unwritten."""
    return torch.empty_like(actions, memory_format=torch.contiguous_format)


def _fake_product(weights: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    return values.new_empty(*weights.shape[:2], values.shape[2])


def _fake_product_backward(
    cotangent: Tensor, weights: Tensor, values: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    of_weights, of_values = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (weights, values))
    return of_weights, of_values


def _save_map(ctx: Any, inputs: tuple[Tensor, Tensor | None], output: Tensor) -> None:
    actions, lengths = inputs
    ctx.save_for_backward(actions, output, lengths)


def _save_product(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient_of_map(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
    return torch.ops.structattn.stack_pointer_map_backward(cotangent, *ctx.saved_tensors), None


def _gradient_of_product(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
    return (*torch.ops.structattn.stack_pointer_product_backward(cotangent, *ctx.saved_tensors), None)


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError(
        "stack_pointer: the compiled kernels have no second derivative; implementation='reference' has"
    )


for _name, _fake in (
    (_MAP, fake_map),
    (_MAP_BACKWARD, fake_map_backward),
    (_PRODUCT, _fake_product),
    (_PRODUCT_BACKWARD, _fake_product_backward),
):
    torch.library.register_fake(_name, _fake)
torch.library.register_autograd(_MAP, _gradient_of_map, setup_context=_save_map)
torch.library.register_autograd(_PRODUCT, _gradient_of_product, setup_context=_save_product)
torch.library.register_autograd(_MAP_BACKWARD, _refuse_second_gradient)
torch.library.register_autograd(_PRODUCT_BACKWARD, _refuse_second_gradient)
