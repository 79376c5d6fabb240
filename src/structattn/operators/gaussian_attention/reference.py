"""The definition of Gaussian attention: You et al. (2020), sections 3.1 (equation 2) and 6.3.

Legend: i query, j key, f(i) centre, sigma standard deviation. Shapes: B batch, H heads, T queries, K keys of a band.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.common.weighted_sum import weighted_sum
from structattn.support.shapes import Float, Int, Lengths

Kernel = Literal["full", "window", "index"]


@dataclass(frozen=True)
class Gaussians:
    """Heads that differ in their offsets only; see ``gaussian_attention`` for the arguments.

    Raises:
        ValueError: a value is out of range or unknown.
    """

    offsets: tuple[float, ...]
    ratio: float = 1.0
    floor: bool = False
    sigma: float = 1.0
    kernel: Kernel = "full"
    window: int = 3
    causal: bool = False
    normalize: bool = False

    def __post_init__(self) -> None:
        if not all(math.isfinite(offset) for offset in self.offsets):
            raise ValueError(f"offsets={self.offsets}; expected finite numbers")
        if not 0 <= self.ratio < math.inf:
            raise ValueError(f"ratio={self.ratio}; expected 0 <= ratio < inf")
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma={self.sigma}; expected 0 < sigma < inf")
        if self.kernel not in get_args(Kernel):
            raise ValueError(f"kernel={self.kernel!r}; expected one of {get_args(Kernel)}")
        if self.window < 1 or self.window % 2 == 0:
            raise ValueError(f"window={self.window}; expected an odd number of positions")

    @property
    def options(self) -> dict[str, Any]:
        """The fields by name, without the copies of ``asdict``; dynamo of torch 2.11 cannot trace ``vars``."""
        return {name: getattr(self, name) for name in self.__match_args__}

    def radius(self, dtype: torch.dtype) -> int:
        """Return the largest distance from round(f(i)) at which a key may have a weight other than zero.

        Weights below the smallest normal number of ``dtype`` count as zero: for the full form with sigma = 1, those
        beyond 13 positions in float32 and 38 in float64. Normalised weights are relative to that of the nearest key,
        which is at most half a position away; where it is farther, at an end of the sequence, others fall off faster.
        """
        if self.kernel != "full":
            return self.window // 2 if self.kernel == "window" else 0
        if self.normalize:
            farthest = math.sqrt(0.25 + 2 * self.sigma**2 * -math.log(torch.finfo(dtype).tiny))
            return math.floor(min(farthest + 0.5, 2.0**52))
        most = -math.log(torch.finfo(dtype).tiny) + max(0.0, -math.log(self.sigma * math.sqrt(2 * math.pi)))
        return math.floor(min(self.sigma * math.sqrt(2 * most) + 0.5, 2.0**52))

    def values_needed(self, dtype: torch.dtype) -> int:
        """Return how many values, its own and earlier ones, a position of causal self-attention may use (ratio 1)."""
        return max(0, 1 + self.radius(dtype) - math.floor(min(self.offsets, default=0) + 0.5))

    def centres(
        self, first: int, queries: int, device: torch.device
    ) -> tuple[Int[Tensor, "1 queries"], Float[Tensor, "heads queries"]]:
        """Return f(i) = ratio * i + offset of the queries i = first, first + 1, ..., as a sum of two parts.

        The first part is floor(ratio * i), an integer, so that a distance j - f(i) keeps its digits for large
        positions, and with ratio 1 depends on i - j only. With ``floor`` the second part
        is rounded down, and f(i) with it.
        """
        query = torch.arange(first, first + queries, dtype=torch.float64, device=device)[None]
        whole = torch.floor(self.ratio * query)
        rest = self.ratio * query - whole + torch.tensor(self.offsets, dtype=torch.float64, device=device)[:, None]
        return whole.long(), torch.floor(rest) if self.floor else rest


@dataclass(frozen=True)
class Rows:
    """The queries and keys of a call.

    Args:
        queries: T.
        keys: S.
        first: the position of the first query.
        first_key: the position of the first key.
        ends: number of keys of each sequence, (B,); S where None.
        dtype: of the weights, float32 or float64.
        device: of the weights.

    Raises:
        ValueError: T or S is negative, or the dtype is another.
    """

    queries: int
    keys: int
    first: int
    first_key: int
    ends: Int[Tensor, " batch"] | None
    dtype: torch.dtype
    device: torch.device

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype={self.dtype}; expected torch.float32 or torch.float64")
        if self.queries < 0 or self.keys < 0:
            raise ValueError(f"queries={self.queries} and keys={self.keys}; expected at least 0")

    def ends_seen(self, causal: bool) -> Int[Tensor, "#batch 1 #queries"]:
        """Return the number of keys visible to each query, counted from the first one."""
        ends = torch.full((1, 1, 1), self.keys, device=self.device) if self.ends is None else self.ends[:, None, None]
        if not causal:
            return ends
        query = torch.arange(self.first, self.first + self.queries, device=self.device)
        return torch.minimum(ends, query - (self.first_key - 1))


def weights_of(
    heads: Gaussians, rows: Rows, starts: Int[Tensor, "#batch #heads #queries"], count: int
) -> Float[Tensor, "#batch heads queries count"]:
    """Return each query's weights of the ``count`` keys from ``starts`` on.

    w_ij = exp(-(j - f(i))^2 / (2 sigma^2)) / (sigma sqrt(2 pi)), and zero for hidden keys, outside of the window, and
    below the smallest normal number. Cost: O(B * H * T * K), with B = 1 unless the rows have ends.

    Args:
        heads: the Gaussians.
        rows: the queries and keys.
        starts: index of the first key; all ``count`` keys must be among 0 to S - 1.
        count: K.
    """
    whole, rest = heads.centres(rows.first, rows.queries, rows.device)
    step = torch.arange(count, device=rows.device)
    visible = step < (rows.ends_seen(heads.causal) - starts)[..., None]
    # From here on j counts from floor(ratio * i), so that numbers are small, and exact in float32.
    first = starts + rows.first_key - whole
    if heads.kernel != "full":
        from_middle = step + (first - torch.floor(rest + 0.5).long())[..., None]
        visible = visible & (from_middle.abs() <= heads.radius(rows.dtype))
    if heads.kernel == "index":
        return visible.to(rows.dtype)
    distance = ((first.to(rows.dtype)[..., None] + step) - rest.to(rows.dtype)[..., None]) / heads.sigma
    weights = _normalized(distance, visible) if heads.normalize else _density(distance, heads.sigma)
    return torch.where(visible & (weights >= torch.finfo(rows.dtype).tiny), weights, 0)


def dense_weights(heads: Gaussians, rows: Rows) -> Float[Tensor, "#batch heads queries keys"]:
    """Return w_ij for every query i and every key j. Cost: O(B * H * T * S), with B = 1 unless the rows have ends."""
    return weights_of(heads, rows, torch.zeros(1, 1, 1, dtype=torch.int64, device=rows.device), rows.keys)


def gaussian_attention_reference(
    values: Float[Tensor, "batch heads keys size"], heads: Gaussians, rows: Rows, lengths: Lengths
) -> Float[Tensor, "batch heads queries size"]:
    """Return y_i = sum_j w_ij v_j, and zeros from each length on. Cost: O(B * H * T * S * d)."""
    if rows.ends is not None:
        values = torch.where(inside(rows.ends, rows.keys)[:, None, :, None], values, 0)
    weights = dense_weights(heads, rows)
    outputs = weighted_sum(weights, weights != 0, values)
    return outputs if lengths is None else torch.where(inside(lengths, rows.queries)[:, None, :, None], outputs, 0)


def _density(distance: Tensor, sigma: float) -> Tensor:
    return (-0.5 * distance.square()).exp() / (sigma * math.sqrt(2 * math.pi))


def _normalized(distance: Tensor, visible: Tensor) -> Tensor:
    """Return the density divided by its sum over the visible keys, however far away they are.

    exp(-d^2 / 2) is taken relative to the nearest key, at distance n: -(|d| - n) (|d| + n) / 2 keeps its digits where
    both squares are large.
    """
    if distance.shape[-1] == 0:
        return distance
    distance = distance.abs().masked_fill(~visible, torch.inf)
    nearest = distance.amin(-1, keepdim=True)
    some = nearest.isfinite()
    exponents = torch.where(visible & some, -0.5 * (distance - nearest) * (distance + nearest), -torch.inf)
    return torch.where(some, torch.softmax(torch.where(some, exponents, 0), -1), 0)
