"""Positions past the end of a sequence."""

import torch
from torch import Tensor

from structattn.operators.common.checks import inside


def without_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """``x`` (B, T, d) with zeros from each length on, whatever stood there; its gradient is zero there, too."""
    if lengths is None:
        return x
    return torch.where(inside(lengths.to(x.device), x.shape[1])[..., None], x, 0)
