"""Positions that act on attention scores: their protocol, ALiBi and relative positions."""

import math
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.types import Device

from structattn.attention.positions.absolute import ComputedTable, SinusoidalPositions
from structattn.operators.common.checks import head_size
from structattn.support.shapes import Float, Int


@runtime_checkable
class ScorePositions(Protocol):
    """Positions that modify attention scores: scores = scale * query' . key' + bias.

    An object belongs to one layer, because it may have parameters. Results depend on the positions of queries and keys,
    so the same call serves whole sequences (``first`` 0) and single steps (one query, all keys so far).
    """

    def __call__(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, Float[Tensor, "#batch #heads time source"] | None]:
        """Return query' and key', with unchanged shapes, and the bias, on the scale of the scores, or None.

        Args:
            query: q; row t is at position first + t.
            key: k; row s is at position s.
            first: position of the first query.
        """
        ...


class AlibiPositions(ComputedTable):
    """A bias that decreases linearly with the distance between query and key (Press et al. 2022, section 3).

    bias[t, s] = -m_h |t - s| for the query at t and the key at s, added to the scaled products. If H is a power of two,
    the slopes m_h are 2^(-8 / H), 2^(-16 / H), .., 2^-8; otherwise those of the next lower power of two, followed by
    every second one of the next higher. No parameters.

    Args:
        num_heads: H.
        variant: "textbook" as above; "shifted" as in the code of Li et al. (2024), where keys offset their query get
            m_h (1 / 2 - (t - s)), so that of two keys at the same distance the earlier one scores higher.
        device, dtype: as for other layers; the table is float64 with any dtype.
    """

    table_dtype = torch.float64  # of the slopes

    def __init__(
        self,
        num_heads: int,
        variant: Literal["textbook", "shifted"] = "textbook",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads={num_heads}; expected at least 1")
        if variant not in ("textbook", "shifted"):
            raise ValueError(f"variant={variant!r}; expected 'textbook' or 'shifted'")
        self.num_heads, self.variant = num_heads, variant
        self.keep_table(device, dtype)

    def computed_table(self, device: Device) -> Tensor:
        """Return the slopes."""
        return alibi_slopes(self.num_heads).to(torch.get_default_device() if device is None else device)

    def forward(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, Float[Tensor, "1 heads time source"]]:
        """Return query, key and the bias. Cost: O(H * T * S)."""
        if query.shape[1] != self.num_heads:
            raise ValueError(f"the query has {query.shape[1]} heads; expected {self.num_heads}")
        time = torch.arange(first, first + query.shape[2], device=query.device)[:, None]
        return query, key, self.bias(time - torch.arange(key.shape[2], device=query.device), query.dtype)

    def bias(self, offset: Int[Tensor, "time source"], dtype: torch.dtype) -> Float[Tensor, "1 heads time source"]:
        """Return the bias of queries that are ``offset`` positions after keys."""
        distance = offset.abs().to(torch.promote_types(dtype, torch.float32))
        if self.variant == "shifted":
            distance = torch.where(offset > 0, distance - 0.5, distance)
        slopes = self.table.to(offset.device, distance.dtype)[:, None, None]
        return (-slopes * distance)[None].to(dtype)


def alibi_slopes(num_heads: int) -> Float[Tensor, " heads"]:
    """Return the slopes m_1 to m_H in float64."""
    below = 2 ** (num_heads.bit_length() - 1)
    slopes = _geometric(below)
    return torch.cat([slopes, _geometric(2 * below)[::2][: num_heads - below]])


def _geometric(num_heads: int) -> Tensor:
    return 2 ** (-8 / num_heads * torch.arange(1, num_heads + 1, dtype=torch.float64, device="cpu"))


class RelativePositions(nn.Module):
    """Scores from content and from the offset between query and key (Dai et al. 2019, Transformer-XL, section 3.3).

    score[i, j] = ((q_i + u) . k_j + (q_i + v) . W_r R_(i-j)) / sqrt(d / H): R_o are all sines, then all cosines, of
    the offset o, which is negative for keys after their query, so that bidirectional attention works, too. W_r has no
    bias; u and v are one vector per head, initialised from N(0, 0.02^2): d (d + 2) parameters.

    Args:
        d_model: d.
        num_heads: H.
        base: of the frequencies; 256 in the code of Li et al. (2024).
        device, dtype: of the parameters; None: torch's defaults.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        base: float = 10000.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        size = head_size(d_model, num_heads)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.sinusoids = SinusoidalPositions(d_model, layout="halves", base=base, **factory)
        self.projection = nn.Linear(d_model, d_model, bias=False, **factory)  # W_r
        self.content_bias = nn.Parameter(torch.empty(num_heads, 1, size, **factory).normal_(std=0.02))  # u
        self.offset_bias = nn.Parameter(torch.empty(num_heads, 1, size, **factory).normal_(std=0.02))  # v

    def forward(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, Float[Tensor, "batch heads time source"]]:
        """Return the query plus u, the key, and the second term. Cost: O(B * H * T * (T + S) * D + (T + S) * d^2)."""
        num_heads, size = self.content_bias.shape[0], self.content_bias.shape[2]
        if query.shape[1] != num_heads or query.shape[3] != size:
            raise ValueError(
                f"the query has {query.shape[1]} heads of size {query.shape[3]}; expected {num_heads} of size {size}"
            )
        time, source = query.shape[2], key.shape[2]
        if time == 0 or source == 0:
            return query + self.content_bias, key, query.new_zeros(*query.shape[:3], source)
        offsets = self.projection(self._sinusoids_of(first + time, first - source)).unflatten(1, (num_heads, size))
        offset_scores = (query + self.offset_bias) / math.sqrt(size) @ offsets.permute(1, 2, 0)
        return query + self.content_bias, key, _relative_shift(offset_scores, source)

    def _sinusoids_of(self, highest: int, lowest: int) -> Float[Tensor, "offset d_model"]:
        """Return R_o for o from ``highest`` down to ``lowest + 1``."""
        offset = torch.arange(highest, lowest, -1, device=self.sinusoids.table.device)
        rows = self.sinusoids(0, max(highest, -lowest) + 1).index_select(0, offset.abs())
        sines = torch.arange(rows.shape[1], device=rows.device) < (rows.shape[1] + 1) // 2
        return torch.where((offset < 0)[:, None] & sines, -rows, rows)


def _relative_shift(offset_scores: Float[Tensor, "batch heads time offset"], source: int) -> Tensor:
    """Turn columns of offsets into columns of keys, (B, H, T, T + S) into (B, H, T, S) (Dai et al. 2019, appendix B).

    Column c of row t has the offset first + T - c. Key s has the offset first + t - s, which is column T - t + s: one
    further left in every row. Without the first T numbers, and with rows one shorter, it becomes column s.
    """
    time, offsets = offset_scores.shape[2:]
    shifted = offset_scores.flatten(2)[..., time:].reshape(*offset_scores.shape[:2], time, offsets - 1)
    return shifted[..., :source]
