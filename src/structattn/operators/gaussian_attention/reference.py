"""The definition of hard-coded attention: You et al. (2020), section 3.1, equation 2: all weights, times all values."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.common.weighted_sum import weighted_sum
from structattn.operators.gaussian_attention.gaussians import Gaussians
from structattn.operators.gaussian_attention.weights import Rows, weights_of


def dense_weights(heads: Gaussians, rows: Rows) -> Float[Tensor, "#batch heads queries keys"]:
    """w_ij for every query i and every key j. Cost: O(B * H * T * S), with B = 1 unless the rows have ends."""
    return weights_of(heads, rows, torch.zeros(1, 1, 1, dtype=torch.int64, device=rows.device), rows.keys)


def gaussian_attention_reference(
    values: Float[Tensor, "batch heads keys size"],
    heads: Gaussians,
    rows: Rows,
    lengths: Int[Tensor, " batch"] | None,
) -> Float[Tensor, "batch heads queries size"]:
    """y_i = sum_j w_ij v_j, and zeros from each length on. Cost: O(B * H * T * S * d)."""
    if rows.ends is not None:
        values = torch.where(inside(rows.ends, rows.keys)[:, None, :, None], values, 0)
    weights = dense_weights(heads, rows)
    outputs = weighted_sum(weights, weights != 0, values)
    return outputs if lengths is None else torch.where(inside(lengths, rows.queries)[:, None, :, None], outputs, 0)
