"""The compiled superposition stack as a torch operator with its gradient."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import compiled_kernels

_FORWARD = "structattn::superposition_stack"
_BACKWARD = "structattn::superposition_stack_backward"

# Defined by schema, not by the custom_op decorator: that one adds 60 µs to every pass, as much as the kernel takes.
torch.library.define(_FORWARD, "(Tensor actions, Tensor values, Tensor? lengths) -> Tensor")
torch.library.define(
    _BACKWARD, "(Tensor cotangent, Tensor actions, Tensor values, Tensor? lengths) -> (Tensor, Tensor)"
)


def superposition_stack_op(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    """Readings by the compiled kernel; arguments as for the public function, checked, float32 or float64, on a CPU."""
    readings: Tensor = torch.ops.structattn.superposition_stack(actions, values, lengths)
    return readings


def _kernel(direction: str, dtype: torch.dtype, addresses: list[int], shape: torch.Size) -> None:
    extension = compiled_kernels()
    if extension is None or dtype not in (torch.float32, torch.float64):
        raise RuntimeError(f"superposition stack kernel: got {dtype}; expected float32 or float64, and the extension")
    name = f"superposition_stack_{direction}_{str(dtype).removeprefix('torch.')}"
    getattr(extension[1], name)(*addresses, *shape, torch.get_num_threads())


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


@torch.library.impl(_FORWARD, "cpu")
def _forward(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    actions, values = actions.contiguous(), values.contiguous()
    lengths = None if lengths is None else lengths.contiguous()
    readings = torch.empty_like(values)
    addresses = [actions.data_ptr(), values.data_ptr(), _address(lengths), readings.data_ptr()]
    _kernel("forward", values.dtype, addresses, values.shape)
    return readings


@torch.library.impl(_BACKWARD, "cpu")
def _backward(cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    cotangent, actions, values = cotangent.contiguous(), actions.contiguous(), values.contiguous()
    lengths = None if lengths is None else lengths.contiguous()
    grad_actions, grad_values = torch.empty_like(actions), torch.empty_like(values)
    addresses = [cotangent.data_ptr(), actions.data_ptr(), values.data_ptr(), _address(lengths)]
    _kernel("backward", values.dtype, [*addresses, grad_actions.data_ptr(), grad_values.data_ptr()], values.shape)
    return grad_actions, grad_values


def _fake_forward(actions: Tensor, values: Tensor, lengths: Tensor | None) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _fake_backward(cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    grad_actions = torch.empty_like(actions, memory_format=torch.contiguous_format)
    return grad_actions, torch.empty_like(values, memory_format=torch.contiguous_format)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
    return (*torch.ops.structattn.superposition_stack_backward(cotangent, *ctx.saved_tensors), None)


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError(
        "superposition_stack: the compiled kernel has no second derivative; implementation='reference' has"
    )


torch.library.register_fake(_FORWARD, _fake_forward)
torch.library.register_fake(_BACKWARD, _fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_inputs)
torch.library.register_autograd(_BACKWARD, _refuse_second_gradient)
