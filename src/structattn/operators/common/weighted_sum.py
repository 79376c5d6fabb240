"""Weighted sums in which hidden NaN and infinite values do not propagate."""

import torch
from torch import Tensor

from structattn.operators.common.differentiation import transforms_active
from structattn.support.shapes import Bool, Float


def weighted_sum(
    weights: Float[Tensor, "*batch queries keys"],
    visible: Bool[Tensor, "*batch queries keys"],
    values: Float[Tensor, "*batch keys size"],
) -> Float[Tensor, "*batch queries size"]:
    """Return sum_s w_ts v_s; a NaN or infinite value gives NaN, but only for the queries to which it is visible.

    0 * NaN is NaN in a matrix product, so values that are not finite are replaced by zeros before and restored
    where they are visible; if all values are finite, that second product is skipped where their content can be read.
    On a GPU it is one of halves, for matrix units: sums of zeros and ones that only have to differ from 0.
    Cost: O(B * T * S * d).
    """
    finite = values.isfinite()
    readable = values.device.type == "cpu" and not torch.compiler.is_compiling() and not transforms_active()
    if readable and bool(finite.all()):
        return weights @ values
    exact_enough = torch.float16 if values.is_cuda else values.dtype
    broken = visible.to(exact_enough) @ (~finite).to(exact_enough) > 0
    return (weights @ torch.where(finite, values, 0)).masked_fill(broken, torch.nan)
