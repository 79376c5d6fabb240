"""The compiled superposition stack as a torch operator with its gradient."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import kernel_for

_FORWARD = "structattn::superposition_stack"
_BACKWARD = "structattn::superposition_stack_backward"

# Defined by schema, not by the custom_op decorator: that one adds 60 µs to every pass, as much as the kernel takes.
_ARGUMENTS = "Tensor actions, Tensor values, Tensor? lengths, Tensor? initial=None"
torch.library.define(_FORWARD, f"({_ARGUMENTS}) -> Tensor")
torch.library.define(_BACKWARD, f"(Tensor cotangent, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)")


def superposition_stack_op(
    actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None = None
) -> Tensor:
    """Readings by the compiled kernel; arguments as for the public function, checked, float32 or float64, on a CPU."""
    readings: Tensor = torch.ops.structattn.superposition_stack(actions, values, lengths, initial)
    return readings


def _kernel(direction: str, dtype: torch.dtype, addresses: list[int], shape: torch.Size) -> None:
    _, function = kernel_for(f"superposition_stack_{direction}", dtype)
    function(*addresses, *shape, torch.get_num_threads())


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def _addresses(*tensors: Tensor | None) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


@torch.library.impl(_FORWARD, "cpu")
def _forward(actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None = None) -> Tensor:
    given = _contiguous(actions, values, lengths, initial)
    readings = fake_forward(actions, values, lengths, initial)
    _kernel("forward", values.dtype, _addresses(*given, readings), values.shape)
    return readings


@torch.library.impl(_BACKWARD, "cpu")
def _backward(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    given = _contiguous(cotangent, actions, values, lengths, initial)
    gradients = fake_backward(cotangent, actions, values, lengths, initial)
    wanted = gradients if initial is not None else (*gradients[:2], None)
    _kernel("backward", values.dtype, _addresses(*given, *wanted), values.shape)
    return gradients


def fake_forward(actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None = None) -> Tensor:
    """Readings as yet unwritten."""
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def fake_backward(
    cotangent: Tensor, actions: Tensor, values: Tensor, lengths: Tensor | None, initial: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """For actions, values and initial; an empty third where there is no initial row."""
    grad_actions, grad_values = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (actions, values))
    return grad_actions, grad_values, values.new_empty((0,) if initial is None else initial.shape)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
    saved = ctx.saved_tensors  # asked for once: activation checkpointing computes them anew for the asking
    gradients = torch.ops.structattn.superposition_stack_backward(cotangent, *saved)
    return *gradients[:2], None, None if saved[3] is None else gradients[2]


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError(
        "superposition_stack: the compiled kernel has no second derivative; implementation='reference' has"
    )


torch.library.register_fake(_FORWARD, fake_forward)
torch.library.register_fake(_BACKWARD, fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_inputs)
torch.library.register_autograd(_BACKWARD, _refuse_second_gradient)
