"""Weighted sums in which a weight of zero hides what is not a number."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def weighted_sum(
    weights: Float[Tensor, "*batch queries keys"],
    visible: Bool[Tensor, "*batch queries keys"],
    values: Float[Tensor, "*batch keys size"],
) -> Float[Tensor, "*batch queries size"]:
    """sum_s w_ts v_s; an infinite value or a NaN makes a NaN, but only for the queries to which it is visible.

    0 * NaN is NaN in a matrix product, so what is not finite is taken out before and put back where it belongs; a call
    whose values are seen to be finite is spared that second product. Cost: O(T * S * d) for each of the batch.
    """
    finite = values.isfinite()
    if values.device.type == "cpu" and not torch.compiler.is_compiling() and bool(finite.all()):
        return weights @ values
    broken = visible.to(values.dtype) @ (~finite).to(values.dtype) > 0
    return (weights @ torch.where(finite, values, 0)).masked_fill(broken, torch.nan)
