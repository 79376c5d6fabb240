"""The weights of a module as named tensors: what checkpoints hold, and whether it fits a module."""

from collections.abc import Mapping

import torch
from torch import Tensor


class MismatchError(ValueError):
    """Saved tensors do not match the learner; the message names one."""


def weights_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers of a module by name; a tied parameter appears under its first name.

    Of a sharded module, all processes must call this together: they gather each tensor, on the CPU.
    """
    aliases = dict(module.named_parameters(remove_duplicate=False)).keys() - dict(module.named_parameters()).keys()
    return {name: whole(tensor) for name, tensor in module.state_dict().items() if name not in aliases}


def load_weights(module: torch.nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Copy saved tensors into a module.

    Raises:
        MismatchError: a name, shape or dtype differs.
    """
    live = weights_of(module)
    if different := sorted(live.keys() ^ saved.keys()):
        raise MismatchError(f"{different[0]!r} is {'missing' if different[0] in live else 'unknown to the model'}")
    for name, tensor in live.items():
        check_like(name, saved[name], tensor)
    with torch.no_grad():
        for name, tensor in live.items():
            tensor.copy_(saved[name])


def require_finite(tensors: Mapping[str, Tensor]) -> None:
    """Check that no weight is NaN or infinite.

    Raises:
        MismatchError: one is; the message names its tensor.
    """
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise MismatchError(f"{name!r} has a weight that is NaN or infinite")


def check_like(name: str, saved: Tensor, expected: Tensor) -> None:
    """Compare shape and dtype.

    Raises:
        MismatchError: they differ.
    """
    found, wanted = (tuple(saved.shape), saved.dtype), (tuple(expected.shape), expected.dtype)
    if found != wanted:
        raise MismatchError(f"{name!r} has shape {found[0]} and dtype {found[1]}, expected {wanted[0]} and {wanted[1]}")


def whole(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor on the CPU, which all processes must do together; return others as they are."""
    return tensor.full_tensor().cpu() if hasattr(tensor, "full_tensor") else tensor
