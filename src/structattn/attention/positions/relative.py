"""Relative positions."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from structattn.attention.heads import head_size
from structattn.attention.positions.sinusoidal import SinusoidalPositions


class RelativePositions(nn.Module):
    """Scores from content and from the offset of query and key (Dai et al. 2019, Transformer-XL, section 3.3).

    score[i, j] = ((q_i + u) . k_j + (q_i + v) . W_r R_(i-j)) / sqrt(d / H): R_o holds all sines, then all cosines, of
    the offset o, which is negative for keys after their query, so that it serves with and without a causal mask. W_r
    has no bias; u and v are vectors for each head, drawn from N(0, 0.02^2) at first: d (d + 2) parameters.

    Args:
        d_model: d.
        num_heads: H.
        base: of the frequencies; 256 in the code of Li et al. (2024).
    """

    def __init__(self, d_model: int, num_heads: int, base: float = 10000.0) -> None:
        super().__init__()
        size = head_size(d_model, num_heads)
        self.waves = SinusoidalPositions(d_model, layout="halves", base=base)
        self.projection = nn.Linear(d_model, d_model, bias=False)  # W_r
        self.content = nn.Parameter(torch.empty(num_heads, 1, size).normal_(std=0.02))  # u
        self.offset = nn.Parameter(torch.empty(num_heads, 1, size).normal_(std=0.02))  # v

    def forward(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, Float[Tensor, "batch heads time source"]]:
        """The query plus u, the key as it is, and the second term. Cost: O(B * H * T * (T + S) * D + (T + S) * d^2)."""
        num_heads, size = self.content.shape[0], self.content.shape[2]
        if query.shape[1] != num_heads or query.shape[3] != size:
            raise ValueError(
                f"{query.shape[1]} heads of size {query.shape[3]}; these positions were made for {num_heads} of {size}"
            )
        time, source = query.shape[2], key.shape[2]
        if time == 0 or source == 0:
            return query + self.content, key, query.new_zeros(*query.shape[:3], source)
        offsets = self.projection(self._waves(first + time, first - source)).unflatten(1, (num_heads, size))
        by_offset = (query + self.offset) / math.sqrt(size) @ offsets.permute(1, 2, 0)
        return query + self.content, key, _by_key(by_offset, source)

    def _waves(self, highest: int, lowest: int) -> Float[Tensor, "offset d_model"]:
        """R_o for o from ``highest`` down to ``lowest + 1``."""
        offset = torch.arange(highest, lowest, -1, device=self.waves.table.device)
        rows = self.waves(0, max(highest, -lowest) + 1).index_select(0, offset.abs())
        sines = torch.arange(rows.shape[1], device=rows.device) < (rows.shape[1] + 1) // 2
        return torch.where((offset < 0)[:, None] & sines, -rows, rows)


def _by_key(by_offset: Float[Tensor, "batch heads time offset"], source: int) -> Tensor:
    """(B, H, T, S), where (B, H, T, T + S) has in column c of row t the offset first + T - c.

    Key s stands at offset first + t - s, in column T - t + s: one column further to the left in every row. Once the
    first T numbers are dropped, rows that are shorter by one put it in column s (Dai et al. 2019, appendix B).
    """
    time, offsets = by_offset.shape[2:]
    shifted = by_offset.flatten(2)[..., time:].reshape(*by_offset.shape[:2], time, offsets - 1)
    return shifted[..., :source]
