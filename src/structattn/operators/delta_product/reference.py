"""The definition of gated DeltaProduct: Siems et al. (2025), section 3, and its gate (Yang et al. 2025).

Legend: S the state, a matrix (a, b) for each head; q the query; k_i, v_i, beta_i the key, value and strength of
Householder step i of a token, of which there are m; g the logarithm of the decay. Shapes: B batch, H heads, T time,
a and b the sizes of keys and values.
"""

import torch
from torch import Tensor

from structattn.operators.common.checks import require_shape, without_autocast
from structattn.support.shapes import Float


def delta_product_step(
    state: Float[Tensor, "batch heads key value"],
    query: Float[Tensor, "batch heads key"],
    key: Float[Tensor, "batch heads steps key"],
    value: Float[Tensor, "batch heads steps value"],
    beta: Float[Tensor, "batch heads steps"],
    log_decay: Float[Tensor, "batch heads"],
) -> tuple[Float[Tensor, "batch heads value"], Float[Tensor, "batch heads key value"]]:
    """Return the reading of one token and the new state. Cost: O(m a b) for each head.

    S <- e^g S once, then S <- S + beta_i k_i (v_i - S^T k_i)^T for i = 1 to m; the reading is S^T q / sqrt(a).

    Args:
        state: S after the tokens before; zeros at the beginning.
        query: q.
        key: k_1 to k_m.
        value: v_1 to v_m.
        beta: beta_1 to beta_m.
        log_decay: g.

    Raises:
        ValueError: shapes do not fit.
    """
    require_shape("state", state, (None, None, None, None), "(B, H, a, b)")
    batch, heads, size, width = state.shape
    require_shape("query", query, (batch, heads, size), "(B, H, a)")
    require_shape("key", key, (batch, heads, None, size), "(B, H, m, a)")
    require_shape("value", value, (*key.shape[:3], width), "(B, H, m, b)")
    require_shape("beta", beta, key.shape[:3], "(B, H, m)")
    require_shape("log_decay", log_decay, (batch, heads), "(B, H)")
    with without_autocast(state.device):
        state = torch.exp(log_decay)[..., None, None] * state
        for k, v, strength in zip(key.unbind(2), value.unbind(2), beta.unbind(2), strict=True):
            error = v - (k[..., None, :] @ state).squeeze(-2)
            state = state + (strength[..., None] * k)[..., None] * error[..., None, :]
        return (query[..., None, :] @ state).squeeze(-2) * max(size, 1) ** -0.5, state


def delta_product_reference(
    query: Float[Tensor, "batch heads time key"],
    key: Float[Tensor, "batch heads time steps key"],
    value: Float[Tensor, "batch heads time steps value"],
    beta: Float[Tensor, "batch heads time steps"],
    log_decay: Float[Tensor, "batch heads time"],
) -> Float[Tensor, "batch heads time value"]:
    """Return the readings of all tokens, one after the other. Cost: O(T m a b) for each head."""
    readings, state = [], query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1])
    for token in zip(*(part.unbind(2) for part in (query, key, value, beta, log_decay)), strict=True):
        reading, state = delta_product_step(state, *token)
        readings.append(reading)
    return torch.stack(readings, 2) if readings else value[..., 0, :]
