"""The definition of softmax attention: Vaswani et al. (2017), equation 1.

Shapes: B batch, H heads, T queries, S keys, D size of a query and of a key, E size of a value.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.softmax_attention.visibility import Visibility, without_end


def softmax_weights(
    query: Tensor, key: Tensor, visible: Visibility, scale: float
) -> Float[Tensor, "batch heads queries keys"]:
    """w[t] = softmax over the visible s of (scale * q_t . k_s + bias[t, s]); zeros where all keys are hidden.

    NaN affects visible pairs only: it is replaced by 0 before the matrix product and restored for those pairs.
    """
    query, key = without_end(query, visible.lengths), without_end(key, visible.memory_lengths)
    allowed = visible.pairs(query.shape[2], key).expand(*query.shape[:3], key.shape[2])
    scores = scale * (_without_nan(query) @ _without_nan(key).transpose(-1, -2))
    if visible.bias is not None:
        scores = scores + visible.bias
    nan_pairs = query.isnan().any(-1)[..., :, None] | key.isnan().any(-1)[..., None, :]
    scores = torch.where(allowed, scores.masked_fill(nan_pairs, torch.nan), -torch.inf)
    some_key = allowed.any(-1, keepdim=True)
    return torch.where(allowed, torch.softmax(torch.where(some_key, scores, 0), -1), 0)


def softmax_attention_reference(
    inputs: list[Tensor], visible: Visibility, scale: float, dropout: float
) -> tuple[Float[Tensor, "batch heads queries value"], Float[Tensor, "batch heads queries keys"]]:
    """Return the outputs sum_s w[t, s] v_s and the weights w before dropout.

    A query without a visible key has zero weights, and zero gradients. 0 * NaN is NaN in a matrix product, so NaN in
    the values is replaced by 0 before and restored for the queries to which it is visible.
    Cost: O(B * H * T * S * (D + E)) time, O(B * H * T * S) memory.
    """
    query, key, value = inputs
    weights = softmax_weights(query, key, visible, scale)
    value = without_end(value, visible.memory_lengths)
    outputs = F.dropout(weights, dropout) @ _without_nan(value)
    allowed = visible.pairs(query.shape[2], key)
    nan_seen = allowed.to(value.dtype) @ value.isnan().to(value.dtype) > 0
    return without_end(outputs.masked_fill(nan_seen, torch.nan), visible.lengths), weights


def _without_nan(tensor: Tensor) -> Tensor:
    return torch.where(tensor.isnan(), 0, tensor)
