"""The definition of softmax attention: Vaswani et al. (2017), equation 1.

Shapes: B batch, H heads, T queries, S keys, D size of a query and of a key, E size of a value.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.checks import inside


def allowed_pairs(
    lengths: Int[Tensor, " batch"] | None, causal: bool, mask: Tensor | None, queries: int, like: Tensor
) -> Bool[Tensor, "#batch #heads queries keys"]:
    """Which query may see which of ``like``'s keys (B, H, S, D): before the length, not later, not masked."""
    keys = like.shape[2]
    allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=like.device)
    if causal:
        allowed = allowed.tril()
    if lengths is not None:
        here = inside(lengths, keys)
        allowed = allowed & here[:, None, None, :] & here[:, None, :, None]
    if mask is not None:
        allowed = allowed & (mask if mask.dtype == torch.bool else mask != -torch.inf)
    return allowed


def softmax_attention_reference(
    inputs: list[Tensor],
    lengths: Int[Tensor, " batch"] | None,
    causal: bool,
    mask: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Float[Tensor, "batch heads queries value"], Float[Tensor, "batch heads queries keys"]]:
    """Outputs sum_s w[t,s] v_s and weights w[t] = softmax over the allowed s of (scale * q_t . k_s + mask[t,s]).

    A query without an allowed key has no weights: zeros, and zero gradients. A NaN counts only where it is allowed:
    0 * NaN is NaN in a matrix product, so every NaN is taken out before and put back where it belongs.
    Cost: O(B * H * T * S * (D + E)) time, O(B * H * T * S) memory. The weights returned are those before dropout.
    """
    query, key, value = (_cut(tensor, lengths) for tensor in inputs)
    allowed = allowed_pairs(lengths, causal, mask, query.shape[2], key).expand(*query.shape[:3], key.shape[2])
    scores = scale * (_without_nan(query) @ _without_nan(key).transpose(-1, -2))
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask
    nan_pairs = query.isnan().any(-1)[..., :, None] | key.isnan().any(-1)[..., None, :]
    scores = torch.where(allowed, scores.masked_fill(nan_pairs, torch.nan), -torch.inf)
    some_key = allowed.any(-1, keepdim=True)
    weights = torch.where(some_key, torch.softmax(torch.where(some_key, scores, 0), -1), 0)
    outputs = F.dropout(weights, dropout) @ _without_nan(value)
    nan_seen = allowed.to(value.dtype) @ value.isnan().to(value.dtype) > 0
    return _cut(outputs.masked_fill(nan_seen, torch.nan), lengths), weights


def _cut(tensor: Tensor, lengths: Tensor | None) -> Tensor:
    """Zeros past the length, whose gradient is zero whatever comes back."""
    return tensor if lengths is None else torch.where(inside(lengths, tensor.shape[2])[:, None, :, None], tensor, 0)


def _without_nan(tensor: Tensor) -> Tensor:
    return torch.where(tensor.isnan(), 0, tensor)
