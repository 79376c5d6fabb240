"""When kernels may read rows where they stand in a store, instead of copies of them, and how they are told which."""

import torch
from torch import Tensor

from structattn.operators.common.checks import require_shape
from structattn.operators.common.kernels import compiled_kernels


def can_read_stored(*tensors: Tensor) -> bool:
    """Whether kernels can: on a CPU, in float32 or float64, and where no gradient is wanted."""
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return False
    there = all(tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64) for tensor in tensors)
    return there and compiled_kernels() is not None


def require_slots(slots: Tensor, batch: int | None = None) -> None:
    """Raise ValueError unless ``slots`` are numbers of rows, (B, S) int64."""
    require_shape("slots", slots, (batch, None), "(B, S)")
    if slots.dtype != torch.int64:
        raise ValueError(f"slots has dtype {slots.dtype}; expected torch.int64")
