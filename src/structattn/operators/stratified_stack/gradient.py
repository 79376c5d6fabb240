"""The compiled stratified stack as a torch operator with its gradient."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import kernel_for

_FORWARD = "structattn::stratified_stack"
_BACKWARD = "structattn::stratified_stack_backward"

# Defined by schema, not by the custom_op decorator, which adds 60 µs to every pass.
_ARGUMENTS = "Tensor actions, Tensor values, Tensor? lengths"
torch.library.define(_FORWARD, f"({_ARGUMENTS}) -> Tensor")
torch.library.define(_BACKWARD, f"(Tensor cotangent, {_ARGUMENTS}) -> (Tensor, Tensor)")


def stratified_stack_op(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """Readings by the compiled kernel; arguments as for the public function, checked, float32 or float64, on a CPU."""
    readings: Tensor = torch.ops.structattn.stratified_stack(actions, values, lengths)
    return readings


def _run(direction: str, values: Tensor, given: tuple[Tensor | None, ...], results: tuple[Tensor, ...]) -> None:
    _, function = kernel_for(f"stratified_stack_{direction}", values.dtype)
    ready = [None if tensor is None else tensor.contiguous() for tensor in given]
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in (*ready, *results)]
    function(*addresses, *values.shape, torch.get_num_threads())


@torch.library.impl(_FORWARD, "cpu")
def _forward(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    readings = _fake_forward(actions, values, lengths)
    _run("forward", values, (actions, values, lengths), (readings,))
    return readings


@torch.library.impl(_BACKWARD, "cpu")
def _backward(cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    gradients = _fake_backward(cotangent, actions, values, lengths)
    _run("backward", values, (cotangent, actions, values, lengths), gradients)
    return gradients


def _fake_forward(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _fake_backward(cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    grad_actions, grad_values = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (actions, values))
    return grad_actions, grad_values


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
    saved = ctx.saved_tensors  # asked for once: activation checkpointing computes them anew for the asking
    return *torch.ops.structattn.stratified_stack_backward(cotangent, *saved), None


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError(
        "stratified_stack: the compiled kernel has no second derivative; implementation='reference' has"
    )


torch.library.register_fake(_FORWARD, _fake_forward)
torch.library.register_fake(_BACKWARD, _fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_inputs)
torch.library.register_autograd(_BACKWARD, _refuse_second_gradient)
