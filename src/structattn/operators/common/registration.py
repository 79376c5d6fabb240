"""Registration of operators with torch.library."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

_Result = TypeVar("_Result")
_Rule = Callable[..., Any]


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
    batching_rule: _Rule | None = None,
    tangent: _Rule | None = None,
) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Decorate a kernel: register it as ``torch.ops.structattn.<name>``, and return that operator.

    The schema comes from the kernel's annotations. ``torch.library.custom_op`` is not used, because it adds 60 µs to
    every call.

    Args:
        name: of the operator.
        fake: ``fake(*inputs)`` returns outputs of the right shapes, dtypes and strides with arbitrary values, for
            tracing.
        gradient: ``gradient(ctx, *output_gradients)`` returns the gradient of each input; see
            ``refuse_double_backward``. None: the operator is not differentiable.
        save: ``save(ctx, inputs, output)`` saves what ``gradient`` and ``tangent`` need; None saves nothing.
        devices: the types of device that the kernel runs on; "default" stands for all.
        batching_rule: ``batching_rule(info, in_dims, *inputs)`` returns outputs and their batch dimensions, for
            ``torch.vmap``; see ``torch.library.register_vmap``.
        tangent: ``tangent(ctx, *input_tangents)`` returns the tangent of each output, for forward-mode differentiation;
            see ``torch.autograd.Function.jvp``. Needs ``gradient``, and a ``save`` that calls ``ctx.save_for_forward``.
    """

    def decorate(kernel: Callable[..., _Result]) -> Callable[..., _Result]:
        qualified = f"structattn::{name}"
        torch.library.define(qualified, torch.library.infer_schema(kernel, mutates_args=()))
        torch.library.impl(qualified, devices, kernel)
        torch.library.register_fake(qualified, fake)
        operator: Callable[..., _Result] = getattr(torch.ops.structattn, name)
        if tangent is not None:
            function = _function(operator, gradient, save, tangent)
            torch.library.impl(qualified, "Autograd", function.apply)
        elif gradient is not None:
            torch.library.register_autograd(qualified, gradient, setup_context=save)
        if batching_rule is not None:
            torch.library.register_vmap(qualified, batching_rule)
        return operator

    return decorate


def refuse_double_backward(operator: str, processor: Literal["CPU", "GPU"]) -> _Rule:
    """Return a gradient for a backward kernel that raises NotImplementedError."""

    def refuse(ctx: Any, *cotangents: Tensor) -> None:
        raise NotImplementedError(
            f"{operator}: double backward is not supported by the {processor} kernel; use implementation='reference'"
        )

    return refuse


def _function(
    operator: _Rule, gradient: _Rule | None, save: _Rule | None, tangent: _Rule
) -> type[torch.autograd.Function]:
    """Wrap the operator in an autograd function: ``torch.library.register_autograd`` does not support tangents."""

    def forward(*inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*inputs)

    methods = {"forward": forward, "setup_context": save, "backward": gradient, "jvp": tangent}
    return type("Differentiable", (torch.autograd.Function,), {k: staticmethod(f) for k, f in methods.items() if f})
