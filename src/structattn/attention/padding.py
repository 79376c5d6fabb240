"""Padding at the ends of sequences."""

import torch
from torch import Tensor

from structattn.operators.common.checks import inside


def mask_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Set ``x`` (B, T, d) to zero from each length on, NaN included; its gradient is zero there, too."""
    if lengths is None:
        return x
    return torch.where(inside(lengths.to(x.device), x.shape[1])[..., None], x, 0)


def full_memory_lengths(lengths: Tensor | None, memory_lengths: Tensor | None, source: int) -> Tensor | None:
    """Return memory lengths for the operators, which take those of queries for both: S where only queries have any."""
    if lengths is None or memory_lengths is not None:
        return memory_lengths
    return torch.full_like(lengths, source)
