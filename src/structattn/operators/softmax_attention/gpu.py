"""Softmax attention by torch's fused kernels, for GPUs."""

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.softmax_attention.reference import Visibility, without_end


def softmax_attention_fused(inputs: list[Tensor], visible: Visibility, scale: float, dropout: float) -> Tensor:
    """Return the outputs (B, H, T, E); arguments as for the definition.

    Without any mask but the causal one torch can use its fastest kernel.
    """
    query, key, value = inputs
    query = without_end(query, visible.lengths)
    key, value = without_end(key, visible.memory_lengths), without_end(value, visible.memory_lengths)
    needed = _without_implied_lengths(visible)
    if needed.mask is None and needed.memory_lengths is None:
        outputs = F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=visible.causal, scale=scale
        )
    else:
        outputs = _masked(query, key, value, needed, scale, dropout)
    return without_end(outputs, visible.lengths)


def _without_implied_lengths(visible: Visibility) -> Visibility:
    """Return what a mask must contain where queries past the length may read anything.

    A causal mask hides the keys past the end from every query that counts, if queries and keys have the same lengths.
    So masks and biases that all sequences share, as those of positions are, need not be copied for each of them. Those
    of one sequence may hold NaN past its length, which must stay hidden.
    """
    if visible.mask is not None and visible.mask.dim() == 4 and len(visible.mask) > 1:
        return visible
    implied = visible.causal and visible.memory_lengths is visible.lengths
    return visible._replace(lengths=None, memory_lengths=None if implied else visible.memory_lengths)


def _masked(query: Tensor, key: Tensor, value: Tensor, visible: Visibility, scale: float, dropout: float) -> Tensor:
    allowed = visible.pairs(query.shape[2], key)
    some_key = allowed.any(-1, keepdim=True)
    bias = torch.where(allowed | ~some_key, 0.0, -torch.inf).to(query.dtype)
    if visible.bias is not None:
        bias = torch.where(allowed, bias + visible.bias, bias)
    outputs = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale)
    return torch.where(some_key, outputs, 0)
