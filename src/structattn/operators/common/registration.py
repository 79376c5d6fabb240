"""Registration of operators with torch.library."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from structattn.operators.common.batching import Batching, batching_rule
from structattn.operators.common.differentiation import autograd_kernel

_Result = TypeVar("_Result")
_Rule = Callable[..., Any]
_BATCH_FIRST = Batching()


def save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save all inputs, tensors or None, for the backward pass."""
    ctx.save_for_backward(*inputs)


def register(
    name: str,
    *,
    fake: _Rule,
    gradient: _Rule | None = None,
    save: _Rule | None = None,
    devices: str | Sequence[str] = "cpu",
    definition: _Rule | None = None,
    batching: Batching = _BATCH_FIRST,
) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Decorate a kernel: register it as ``torch.ops.structattn.<name>``, and return that operator.

    The schema comes from the kernel's annotations; its arguments have no defaults. ``torch.library.custom_op`` is not
    used, because it adds 60 µs to every call.

    Args:
        name: of the operator.
        fake: ``fake(*inputs)`` returns outputs of the right shapes, dtypes and strides with arbitrary values, for
            tracing.
        gradient: ``gradient(ctx, *output_gradients)`` returns the gradient of each input; see
            ``refuse_double_backward``. None: the operator is not differentiable.
        save: ``save(ctx, inputs, output)`` saves what ``gradient`` needs; None saves nothing.
        devices: the types of device that the kernel runs on; "default" stands for all.
        definition: ``definition(*inputs)`` computes the outputs by operations that torch can differentiate. It runs in
            place of the kernel in forward-mode differentiation, which is refused where it is None.
        batching: which dimension of the inputs is the batch, for ``torch.vmap``; see ``batching_rule``.
    """

    def decorate(kernel: Callable[..., _Result]) -> Callable[..., _Result]:
        qualified = f"structattn::{name}"
        torch.library.define(qualified, torch.library.infer_schema(kernel, mutates_args=()))
        torch.library.impl(qualified, devices, kernel)
        torch.library.register_fake(qualified, fake)
        operator: Callable[..., _Result] = getattr(torch.ops.structattn, name)
        torch.library.impl(qualified, "Autograd", autograd_kernel(name, operator, gradient, save, definition))
        names = list(inspect.signature(kernel).parameters)
        torch.library.register_vmap(qualified, batching_rule(operator, names, batching))
        return operator

    return decorate


def refuse_double_backward(operator: str, processor: Literal["CPU", "GPU"]) -> _Rule:
    """Return a gradient for a backward kernel that raises NotImplementedError."""

    def refuse(ctx: Any, *cotangents: Tensor) -> None:
        raise NotImplementedError(
            f"{operator}: double backward is not supported by the {processor} kernel; use implementation='reference'"
        )

    return refuse
