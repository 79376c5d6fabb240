"""The definition of Gaussian attention: You et al. (2020), sections 3.1 (equation 2) and 6.3.

Legend: i query, j key, f(i) centre, sigma standard deviation. Shapes: B batch, H heads, T queries, K keys of a band.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.common.stack_contents import weighted_sum
from structattn.operators.gaussian_attention.gaussians import Gaussians
from structattn.support.shapes import Float, Int


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
    """

    queries: int
    keys: int
    first: int
    first_key: int
    ends: Int[Tensor, " batch"] | None
    dtype: torch.dtype
    device: torch.device

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
    values: Float[Tensor, "batch heads keys size"],
    heads: Gaussians,
    rows: Rows,
    lengths: Int[Tensor, " batch"] | None,
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
