"""One step of the recursion over layers.

Legend: s_ij whether position i depends on input j; z_ik whether it attends to k. Shapes: B batch, H heads, T positions,
K positions attended to, N inputs.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Union = Literal["clamp", "probabilistic"]


def below_one(total: Tensor) -> Tensor:
    """Return min(total, 1), with gradient zero where the result is 1."""
    return torch.where(total < 1, total, 1)


def hard_step(
    field: Bool[Tensor, "batch positions inputs"],
    choices: Int[Tensor, "batch heads positions"],
    attended: Bool[Tensor, "batch memory inputs"],
) -> Bool[Tensor, "batch positions inputs"]:
    """r(i) with r(z_i) of every head added to it; a choice of -1 adds nothing. Cost: O(B * H * T * N)."""
    for choice in choices.unbind(1):
        rows = choice.clamp(min=0)[..., None].expand(-1, -1, attended.shape[2])
        added = attended.gather(1, rows) if attended.shape[1] else torch.zeros_like(field)
        field = field | (added & (choice >= 0)[..., None])
    return field


def relaxed_step(
    field: Float[Tensor, "batch positions inputs"],
    weights: Float[Tensor, "batch heads positions memory"],
    attended: Float[Tensor, "batch memory inputs"],
    union: Union,
) -> Float[Tensor, "batch positions inputs"]:
    """s_ij + sum_h sum_k z^h_ik s_kj, at most 1 (equation 1 of the paper, its sum running over heads as well).

    "probabilistic" gives 1 - (1 - s_ij) prod_h (1 - sum_k z^h_ik s_kj) instead: the probability that i depends on j,
    if it did so before and does so through each head independently. Cost: O(B * T * K * N), times H for the latter.
    """
    if union == "clamp":
        return below_one(field + weights.sum(1) @ attended)
    independent = 1 - field
    for weight in weights.unbind(1):
        independent = independent * (1 - weight @ attended)
    return 1 - independent
