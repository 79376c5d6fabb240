"""The definition of hard attention: the Discrete Transformer paper, section 4.

Legend: l scores, -inf for hidden keys; z weights. Shapes: B batch, H heads, T queries, S keys.
"""

import torch
from torch import Tensor

from structattn.support.shapes import Float


def hard_weights(scores: Float[Tensor, "batch heads queries keys"]) -> Float[Tensor, "batch heads queries keys"]:
    """Return one-hot z at argmax_k l_k, the lowest index in a tie; zeros where all keys are hidden."""
    if scores.shape[-1] == 0:
        return scores
    best, choices = scores.max(-1, keepdim=True)
    # Not by ``one_hot``, which reads the choices: transforms cannot.
    weights = (choices == torch.arange(scores.shape[-1], device=scores.device)).to(scores.dtype)
    return torch.where(best == -torch.inf, 0, weights.masked_fill(best.isnan(), torch.nan))
