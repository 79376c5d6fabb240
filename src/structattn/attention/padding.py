"""Positions past the ends of sequences."""

import torch
from torch import Tensor

from structattn.operators.common.checks import inside


def without_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """``x`` (B, T, d) with zeros from each length on, whatever stood there; its gradient is zero there, too."""
    if lengths is None:
        return x
    return torch.where(inside(lengths.to(x.device), x.shape[1])[..., None], x, 0)


def memory_end(lengths: Tensor | None, memory_lengths: Tensor | None, source: int) -> Tensor | None:
    """The lengths of a memory of S = ``source`` as operators want them: S where only those of the queries are given."""
    if lengths is None or memory_lengths is not None:
        return memory_lengths
    return torch.full_like(lengths, source)
