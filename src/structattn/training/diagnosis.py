"""Which module made a step not finite: the step is run again with every module watched."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def is_finite(value: object) -> bool:
    """Whether a module's output, a tensor or a tuple with tensors in it, holds no NaN and no infinity."""
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    return all(is_finite(part) for part in value) if isinstance(value, tuple | list) else True


@contextmanager
def watched(model: torch.nn.Module) -> Iterator[list[str]]:
    """Within the block, note every value that is not finite, in the order in which they arise."""
    found: list[str] = []
    hooks = [
        module.register_forward_hook(_watch(f"{name or 'the model'} ({type(module).__name__})", found))
        for name, module in model.named_modules()
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _watch(label: str, found: list[str]) -> Callable[..., None]:
    def look(module: torch.nn.Module, inputs: object, output: object) -> None:
        if not is_finite(output):
            found.append(f"the output of {label}")
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(look_at_gradient)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def look_at_gradient(gradient: Tensor) -> None:
        if not is_finite(gradient):
            found.append(f"the gradient that reaches {label}")

    return look


def first_not_finite(model: torch.nn.Module, run: Callable[[], object]) -> str:
    """Run a step again and name the first value that is not finite.

    Args:
        model: the model whose modules are watched.
        run: forward and backward pass, leaving gradients behind.
    """
    with watched(model) as found:
        run()
    if found:
        return found[0]
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not is_finite(parameter.grad):
            return f"the gradient of {name}"
    return "not seen again when the step was repeated"
