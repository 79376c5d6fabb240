"""Derivatives of operators under autograd, function transforms and ``torch.compile``."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

_Function = TypeVar("_Function", bound=Callable[..., Any])


def constant_when_compiled(function: _Function) -> _Function:
    """Let ``torch.compile`` call the function while it traces, and keep its result as a constant.

    The same mark as by ``torch.compiler.assume_constant_result``, which would import the compiler: two seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


Rule = Callable[..., Any]

# Whether the caller runs within a transform of ``torch.func``, such as ``vmap`` or ``grad``.
transforms_active: Callable[[], bool] = torch._C._are_functorch_transforms_active


def in_forward_mode() -> bool:
    """Whether tensors may carry tangents: within ``forward_ad.dual_level`` or ``torch.func.jvp``."""
    if forward_ad._current_level >= 0:
        return True
    # Compiled code enters the level without setting the variable.
    return transforms_active() and any(
        transform.key() == TransformType.Jvp for transform in get_interpreter_stack() or ()
    )


def is_eager() -> bool:
    """Whether operations are computed when they are called, and nothing but autograd sees them.

    That is outside of transforms of ``torch.func``, forward mode, and modes such as that of ``make_fx``, which a kernel
    that takes addresses of tensors would pass by. The mode of a default device does not count.
    """
    if transforms_active() or forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack():
        return False
    modes = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]  # torch's
    return all(type(mode) is DeviceContext for mode in modes)


def without_history(x: Tensor) -> Tensor:
    """Detach ``x``, except where torch.func or forward mode would take a missing derivative for zero."""
    return x if transforms_active() or in_forward_mode() else x.detach()


def autograd_kernel(
    name: str, operator: Rule, gradient: Rule | None, save: Rule | None, definition: Rule | None
) -> Rule:
    """Return what to register at the Autograd key of an operator.

    In forward mode the definition runs in place of the kernel, so that torch differentiates it, and whatever is nested
    around it, to any order. An operator without a definition refuses tangents.
    """

    def forward(ctx: Any, *inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            output = operator(*inputs)
        if save is not None:
            save(ctx, inputs, output)
        return output

    def forward_at_level(ctx: Any, *inputs: Any) -> Any:
        # Outer transforms need both modes, which autograd switches off around this function.
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
            return forward(ctx, *inputs)

    def refuse_gradient(ctx: Any, *cotangents: Any) -> None:
        raise NotImplementedError(f"{name} is not differentiable")

    def refuse_tangents(ctx: Any, *tangents: Any) -> None:
        raise NotImplementedError(
            f"{name}: forward-mode derivatives (jvp) are not supported by the kernel; use implementation='reference'"
        )

    def function(base: type, forward: Rule) -> Any:
        methods = {"forward": forward, "backward": gradient or refuse_gradient, "jvp": refuse_tangents}
        return type(name, (base,), {key: staticmethod(method) for key, method in methods.items()})

    ordinary = function(torch.autograd.Function, forward)
    at_level = function(torch.autograd.function._SingleLevelFunction, forward_at_level)

    def transformed(*inputs: Any) -> Any:
        if definition is not None and in_forward_mode():
            return definition(*inputs)
        if not transforms_active():
            return ordinary.apply(*inputs)
        with enable_single_level_autograd_function():
            return at_level.apply(*inputs)

    def kernel(*inputs: Any) -> Any:
        if transforms_active() or forward_ad._current_level >= 0:
            return transformed(*inputs)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs):
            return ordinary.apply(*inputs)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*inputs)

    return kernel
