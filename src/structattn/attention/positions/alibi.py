"""ALiBi: attention with linear biases."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn


class AlibiPositions(nn.Module):
    """A bias that decreases linearly with the distance between query and key (Press et al. 2022, section 3).

    bias[t, s] = -m_h |t - s| for the query at t and the key at s, added to the scaled products. If H is a power of two,
    the slopes m_h are 2^(-8 / H), 2^(-16 / H), .., 2^-8; otherwise those of the next lower power of two, followed by
    every second one of the next higher. No parameters.

    Args:
        num_heads: H.
        variant: "textbook" as above; "shifted" as in the code of Li et al. (2024), where keys offset their query get
            m_h (1 / 2 - (t - s)), so that of two keys at the same distance the earlier one scores higher.
    """

    slopes: Tensor

    def __init__(self, num_heads: int, variant: Literal["textbook", "shifted"] = "textbook") -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads={num_heads}; expected at least 1")
        if variant not in ("textbook", "shifted"):
            raise ValueError(f"variant={variant!r}; expected 'textbook' or 'shifted'")
        self.variant = variant
        self.register_buffer("slopes", alibi_slopes(num_heads), persistent=False)

    def forward(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, Float[Tensor, "1 heads time source"]]:
        """Return query, key and the bias. Cost: O(H * T * S)."""
        if query.shape[1] != self.slopes.shape[0]:
            raise ValueError(f"the query has {query.shape[1]} heads; expected {self.slopes.shape[0]}")
        time = torch.arange(first, first + query.shape[2], device=query.device)[:, None]
        offset = time - torch.arange(key.shape[2], device=query.device)
        distance = offset.abs().to(torch.promote_types(query.dtype, torch.float32))
        if self.variant == "shifted":
            distance = torch.where(offset > 0, distance - 0.5, distance)
        slopes = self.slopes.to(query.device, distance.dtype)[:, None, None]
        return query, key, (-slopes * distance)[None].to(query.dtype)


def alibi_slopes(num_heads: int) -> Float[Tensor, " heads"]:
    """Return the slopes m_1 to m_H in float64."""
    below = 2 ** (num_heads.bit_length() - 1)
    slopes = _geometric(below)
    return torch.cat([slopes, _geometric(2 * below)[::2][: num_heads - below]])


def _geometric(num_heads: int) -> Tensor:
    return 2 ** (-8 / num_heads * torch.arange(1, num_heads + 1, dtype=torch.float64))
