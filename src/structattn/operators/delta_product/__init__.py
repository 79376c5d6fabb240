"""Gated DeltaProduct: a linear recurrence whose state transitions are products of Householder matrices."""

from typing import Literal

import torch
from torch import Tensor

from structattn.operators.common.checks import (
    checked_lengths,
    computing_precision,
    inside,
    require_shape,
    without_autocast,
)
from structattn.operators.delta_product.chunked import delta_product_chunked
from structattn.operators.delta_product.reference import delta_product_reference, delta_product_step
from structattn.support.shapes import Float, Lengths

__all__ = ["delta_product", "delta_product_step"]


def delta_product(
    query: Float[Tensor, "batch heads time key"],
    key: Float[Tensor, "batch heads time steps key"],
    value: Float[Tensor, "batch heads time steps value"],
    beta: Float[Tensor, "batch heads time steps"],
    log_decay: Float[Tensor, "batch heads time"],
    *,
    lengths: Lengths = None,
    implementation: Literal["auto", "reference", "chunked"] = "auto",
) -> Float[Tensor, "batch heads time value"]:
    """Readings of gated DeltaProduct (Siems et al. 2025, section 3).

    A matrix S of each head begins with zeros. Each token multiplies it by e^g, applies
    S <- (I - beta_i k_i k_i^T) S + beta_i k_i v_i^T for i = 1 to m, and reads S^T q / sqrt(a). One step is (gated)
    DeltaNet. With keys of norm 1, beta = 2 is a reflection and two steps can rotate; beta in (0, 1) can only erase.

    Cost: O(T m a b) time for each head, T m a b memory for gradients of the reference, T m L of the chunked form, with
    L = 64.

    Args:
        query: q.
        key: k_1 to k_m of each token, taken as they are: never normalised.
        value: v_1 to v_m of each token.
        beta: the strength of each step, from 0 to 2 as a rule.
        log_decay: g, at most 0 as a rule; zeros: no gate.
        lengths: the number of tokens of each sequence, 0 to T; all T where None. Tokens from there on give zeros,
            forward and backward, whatever the arguments contain there.
        implementation: "reference" is the definition, token by token; "chunked" uses matrix products, and so does
            "auto", except for a single token.

    Returns:
        The readings, in the dtype of the arguments (float32 where autocast lowered them).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit, m is 0, or ``implementation`` is unknown.
    """
    if implementation not in ("auto", "reference", "chunked"):
        raise ValueError(f"implementation={implementation!r}; expected 'auto', 'reference' or 'chunked'")
    require_shape("query", query, (None, None, None, None), "(B, H, T, a)")
    batch, heads, time, size = query.shape
    require_shape("key", key, (batch, heads, time, None, size), "(B, H, T, m, a)")
    steps = key.shape[3]
    if steps == 0:
        raise ValueError("key has no Householder steps: m = 0; expected at least one")
    require_shape("value", value, (batch, heads, time, steps, None), "(B, H, T, m, b)")
    require_shape("beta", beta, (batch, heads, time, steps), "(B, H, T, m)")
    require_shape("log_decay", log_decay, (batch, heads, time), "(B, H, T)")
    given, dtype = computing_precision(query=query, key=key, value=value, beta=beta, log_decay=log_decay)
    if lengths is not None:
        here = inside(checked_lengths(lengths, batch, time, query.device), time)[:, None]
        given = [torch.where(here.view(batch, 1, time, *[1] * (part.dim() - 3)), part, 0) for part in given]
    scan = implementation == "reference" or (implementation == "auto" and time == 1)
    compute = delta_product_reference if scan else delta_product_chunked
    with without_autocast(query.device):
        return compute(*given).to(dtype)
