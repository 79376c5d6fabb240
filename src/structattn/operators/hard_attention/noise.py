"""Gumbel noise, which makes a draw from a softmax out of an argmax."""

import torch
from torch import Tensor


def gumbel_noise(like: Tensor) -> Tensor:
    """One g = -log(-log U) for each element of ``like``, U uniform between 0 and 1, from torch's generator.

    argmax_k (l_k + g_k) then follows softmax(l). (The Discrete Transformer paper prints g without the first minus sign:
    that is the negative of a Gumbel number, whose argmax follows another law.) U is kept inside the open interval, so
    that every number is finite: from -4.5 to 16.7 in float32, from -6.6 to 36.8 in float64.

    Args:
        like: gives shape, device and dtype, float32 or float64, in which the noise is drawn.
    """
    limits = torch.finfo(like.dtype)
    uniform = torch.rand(like.shape, dtype=like.dtype, device=like.device).clamp_(limits.tiny, 1 - limits.eps / 2)
    return uniform.log_().neg_().log_().neg_()
