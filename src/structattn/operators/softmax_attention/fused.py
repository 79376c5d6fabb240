"""Softmax attention by torch's fused kernels, for GPUs."""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.checks import inside
from structattn.operators.softmax_attention.reference import allowed_pairs


def softmax_attention_fused(
    inputs: list[Tensor],
    lengths: Int[Tensor, " batch"] | None,
    causal: bool,
    mask: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Outputs (B, H, T, E); arguments as for the definition.

    Keys past the end are later than every query that counts, so a causal mask hides them already, and torch's quickest
    kernel, which takes no other mask, can serve.
    """
    query, key, value = inputs
    if lengths is None and mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal, scale=scale)
    here = None if lengths is None else inside(lengths, key.shape[2])[:, None, :, None]
    if here is not None:
        query, key, value = (torch.where(here, tensor, 0) for tensor in (query, key, value))
    outputs = _masked(query, key, value, lengths, causal, mask, scale, dropout)
    return outputs if here is None else torch.where(here, outputs, 0)


def _masked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    causal: bool,
    mask: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    if causal and mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True, scale=scale)
    allowed = allowed_pairs(lengths, causal, mask, query.shape[2], key)
    some_key = allowed.any(-1, keepdim=True)
    bias = torch.where(allowed | ~some_key, 0.0, -torch.inf).to(query.dtype)
    if mask is not None and mask.dtype != torch.bool:
        bias = torch.where(allowed, bias + mask, bias)
    outputs = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale)
    return torch.where(some_key, outputs, 0)
