"""Attention to rows of a shared cache, which sequences name by index instead of copying them."""

import torch
from torch import Tensor

from structattn.operators.common.checks import require_shape
from structattn.operators.common.kernels import compiled_kernels


def can_index_rows(*tensors: Tensor) -> bool:
    """Whether a compiled kernel can take rows by index: on a CPU, in float32 or float64, and without gradients."""
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        return False
    fits = all(tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64) for tensor in tensors)
    return fits and compiled_kernels() is not None


def require_row_indices(row_indices: Tensor, batch: int | None = None) -> None:
    """Raise ValueError unless ``row_indices`` is (B, S) int64."""
    require_shape("row_indices", row_indices, (batch, None), "(B, S)")
    if row_indices.dtype != torch.int64:
        raise ValueError(f"row_indices has dtype {row_indices.dtype}; expected torch.int64")
