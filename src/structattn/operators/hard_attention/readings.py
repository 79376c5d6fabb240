"""From scores to choices, and from choices to readings."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def chosen(
    scores: Float[Tensor, "batch heads queries keys"],
) -> tuple[Float[Tensor, "batch heads queries"], Int[Tensor, "batch heads queries"]]:
    """The largest score of each query and where it is, the lowest index of equals; -inf and -1 where it sees nothing.

    A NaN counts as the largest.
    """
    if scores.shape[-1] == 0:
        return scores.new_full(scores.shape[:-1], -torch.inf), scores.new_full(scores.shape[:-1], -1, dtype=torch.int64)
    best, choices = scores.detach().max(-1)
    return best, torch.where(best == -torch.inf, -1, choices)


def gathered(
    values: Float[Tensor, "batch heads keys size"],
    best: Float[Tensor, "batch heads queries"],
    choices: Int[Tensor, "batch heads queries"],
) -> Float[Tensor, "batch heads queries size"]:
    """The chosen rows of the values, any where the choice is -1, NaN where its score is. Cost: O(B * H * T * d)."""
    batch, heads, keys, size = values.shape
    if keys == 0:
        return values.new_zeros(*choices.shape, keys) @ values
    first = torch.arange(batch * heads, device=values.device).view(batch, heads, 1) * keys
    rows = values.reshape(batch * heads * keys, size).index_select(0, (first + choices.clamp(min=0)).flatten())
    return rows.view(*choices.shape, size).masked_fill(best.isnan()[..., None], torch.nan)
