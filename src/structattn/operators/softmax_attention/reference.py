"""The definition of softmax attention: Vaswani et al. (2017), equation 1.

Shapes: B batch, H heads, T queries, S keys, D size of a query and of a key, E size of a value.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.checks import inside
from structattn.operators.common.weighted_sum import weighted_sum
from structattn.support.shapes import Bool, Float, Lengths


class Visibility(NamedTuple):
    """Lengths, causality and mask of a call.

    Args:
        lengths: the number of queries of each sequence; all T where None.
        memory_lengths: the number of keys; all S where None. Both are given or neither; the same object if one tensor
            serves for both.
        causal: query t attends to keys 0 to t only.
        mask: booleans, true where a key is visible, or a bias of the scores, -inf where it is hidden; broadcasts to
            (B, H, T, S).
    """

    lengths: Lengths
    memory_lengths: Lengths
    causal: bool
    mask: Tensor | None

    @property
    def bias(self) -> Tensor | None:
        """The mask if it is a bias, None if it is boolean."""
        return None if self.mask is None or self.mask.dtype == torch.bool else self.mask

    def pairs(self, queries: int, like: Tensor) -> Bool[Tensor, "#batch #heads #queries keys"]:
        """Return the mask of visible pairs of queries and keys; ``like`` has the shape (B, H, S, D) of the keys."""
        keys = like.shape[2]
        allowed = torch.ones(1, 1, queries if self.causal else 1, keys, dtype=torch.bool, device=like.device)
        if self.causal:
            allowed = allowed.tril()
        if self.lengths is not None:
            allowed = allowed & inside(self.lengths, queries)[:, None, :, None]
        if self.memory_lengths is not None:
            allowed = allowed & inside(self.memory_lengths, keys)[:, None, None, :]
        if self.mask is not None:
            allowed = allowed & (self.mask if self.bias is None else self.mask != -torch.inf)
        return allowed


def without_end(tensor: Tensor, lengths: Tensor | None) -> Tensor:
    """Return ``tensor`` (B, H, T, D) with zeros, and zero gradients, past the length."""
    return tensor if lengths is None else torch.where(inside(lengths, tensor.shape[2])[:, None, :, None], tensor, 0)


def softmax_weights(
    query: Tensor, key: Tensor, visible: Visibility, scale: float
) -> Float[Tensor, "batch heads queries keys"]:
    """w[t] = softmax over the visible s of (scale * q_t . k_s + bias[t, s]); zeros where all keys are hidden.

    What is not finite affects visible pairs only: it is replaced by 0 before the matrix product, and the scores of
    those pairs are NaN.
    """
    query, key = without_end(query, visible.lengths), without_end(key, visible.memory_lengths)
    allowed = visible.pairs(query.shape[2], key).expand(*query.shape[:3], key.shape[2])
    finite, finite_key = query.isfinite(), key.isfinite()
    scores = scale * (torch.where(finite, query, 0) @ torch.where(finite_key, key, 0).transpose(-1, -2))
    if visible.bias is not None:
        scores = scores + visible.bias
    finite_pairs = finite.all(-1)[..., :, None] & finite_key.all(-1)[..., None, :]
    scores = torch.where(allowed, scores.masked_fill(~finite_pairs, torch.nan), -torch.inf)
    some_key = allowed.any(-1, keepdim=True)
    return torch.where(allowed, torch.softmax(torch.where(some_key, scores, 0), -1), 0)


def softmax_attention_reference(
    inputs: list[Tensor], visible: Visibility, scale: float, dropout: float
) -> tuple[Float[Tensor, "batch heads queries value"], Float[Tensor, "batch heads queries keys"]]:
    """Return the outputs sum_s w[t, s] v_s and the weights w before dropout.

    A query without a visible key has zero weights, and zero gradients. Hidden values have no influence, even if they
    are not finite. Cost: O(B * H * T * S * (D + E)) time, O(B * H * T * S) memory.
    """
    query, key, value = inputs
    weights = softmax_weights(query, key, visible, scale)
    value = without_end(value, visible.memory_lengths)
    outputs = weighted_sum(F.dropout(weights, dropout), visible.pairs(query.shape[2], key), value)
    return without_end(outputs, visible.lengths), weights
