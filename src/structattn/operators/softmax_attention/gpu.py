"""Softmax attention by torch's fused kernels, for GPUs."""

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.softmax_attention.reference import Visibility, without_end


def softmax_attention_fused(inputs: list[Tensor], visible: Visibility, scale: float, dropout: float) -> Tensor:
    """Return the outputs (B, H, T, E); arguments as for the definition.

    If queries and keys have the same lengths, the causal mask already hides the keys past the end from every query that
    counts, so no other mask is needed and torch can use its fastest kernel.
    """
    query, key, value = inputs
    query = without_end(query, visible.lengths)
    key, value = without_end(key, visible.memory_lengths), without_end(value, visible.memory_lengths)
    causal_suffices = visible.mask is None and (
        visible.memory_lengths is None or (visible.causal and visible.memory_lengths is visible.lengths)
    )
    if causal_suffices:
        outputs = F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=visible.causal, scale=scale
        )
    else:
        outputs = _masked(query, key, value, visible, scale, dropout)
    return without_end(outputs, visible.lengths)


def _masked(query: Tensor, key: Tensor, value: Tensor, visible: Visibility, scale: float, dropout: float) -> Tensor:
    allowed = visible.pairs(query.shape[2], key)
    some_key = allowed.any(-1, keepdim=True)
    bias = torch.where(allowed | ~some_key, 0.0, -torch.inf).to(query.dtype)
    if visible.bias is not None:
        bias = torch.where(allowed, bias + visible.bias, bias)
    outputs = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale)
    return torch.where(some_key, outputs, 0)
