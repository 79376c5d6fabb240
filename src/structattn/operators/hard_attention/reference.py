"""The definition of a hard choice: the Discrete Transformer paper, section 4.

Legend: l scores, -inf where a query may not see a key; z weights. Shapes: B batch, H heads, T queries, S keys.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def hard_weights(scores: Float[Tensor, "batch heads queries keys"]) -> Float[Tensor, "batch heads queries keys"]:
    """One-hot z at argmax_k l_k, the lowest of equals; zeros where a query sees nothing. Cost: O(B * H * T * S)."""
    if scores.shape[-1] == 0:
        return scores
    best, choices = scores.max(-1, keepdim=True)
    weights = F.one_hot(choices[..., 0], scores.shape[-1]).to(scores)
    return torch.where(best == -torch.inf, 0, weights.masked_fill(best.isnan(), torch.nan))
