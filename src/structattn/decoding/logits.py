"""Logits as log-probabilities, and the best of many in an order that nothing but themselves decides."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def log_normalizer(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    """The logarithm of sum_c exp(logits_c); 0 where all classes are forbidden, so that -inf - 0 stays -inf."""
    total = logits.logsumexp(-1)
    return total.masked_fill(total == -math.inf, 0)


def top(
    scores: Float[Tensor, "batch choices"], count: int
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:
    """The greatest scores of each row and where they are; of equal ones, the lower index comes first.

    That is a stable sort's beginning, found by ``topk``, whose order among equals is left open, wherever no equals
    compete for the last place. Cost: O(choices) for each row; a sort's where they do. Of scores of -inf any may come.

    Raises:
        ValueError: there is a NaN.
    """
    values, indices = scores.topk(min(count + 1, scores.shape[1]))
    if bool(values.isnan().any()):
        raise ValueError("the model gave NaN; there is no best among its predictions")
    last, next_one = values[:, count - 1 : count], values[:, count : count + 1]
    if bool(((last == next_one) & (last > -math.inf)).any()):
        values, indices = scores.sort(dim=1, descending=True, stable=True)
        return values[:, :count], indices[:, :count]
    indices = indices[:, :count].sort(dim=1).values
    values, order = scores.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)


def at_least_single(logits: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Half precisions as float32: sums of logarithms over a text need its digits."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
