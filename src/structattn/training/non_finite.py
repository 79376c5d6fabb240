"""Where the first NaN or infinity of an update comes from."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from structattn.runs.selection import whole


@contextmanager
def record_non_finite(model: torch.nn.Module) -> Iterator[list[str]]:
    """Collect descriptions of all non-finite values within the block, in the order in which they occur."""
    values: list[str] = []
    hooks = [
        module.register_forward_hook(_hook(f"{name or 'the model'} ({type(module).__name__})", values))
        for name, module in model.named_modules()
    ]
    try:
        yield values
    finally:
        for hook in hooks:
            hook.remove()


def _hook(label: str, values: list[str]) -> Callable[..., None]:
    def check(module: torch.nn.Module, inputs: object, output: object) -> None:
        if not _is_finite(output):
            values.append(f"the output of {label}")
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(check_gradient)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def check_gradient(gradient: Tensor) -> None:
        if not _is_finite(gradient):
            values.append(f"the gradient of the output of {label}")

    return check


def first_gradient_not_finite(model: torch.nn.Module) -> str:
    """Return a description of the first gradient of a parameter that is not finite, or of a norm that overflows.

    Processes that hold parts of the model must call this together.
    """
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not _is_finite(whole(parameter.grad)):
            return f"the gradient of {name}"
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if not _is_finite(whole(get_total_norm(gradients))):
        return "the sum of the squares of the gradients, which are finite"
    return "not reproduced when the step was repeated"


def _is_finite(value: object) -> bool:
    """Return whether a module's output, a tensor or nested tuple of tensors, holds no NaN and no infinity."""
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    return all(_is_finite(part) for part in value) if isinstance(value, tuple | list) else True
