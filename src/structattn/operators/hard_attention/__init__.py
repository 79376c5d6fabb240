"""Hard attention: each query selects one value, by argmax or by Gumbel-softmax sampling."""

import math
from typing import Literal, overload

import torch
from torch import Tensor

from structattn.operators.common.checks import (
    checked_two_lengths,
    computing_precision,
    inside,
    require_shape,
    without_autocast,
)
from structattn.operators.common.weighted_sum import weighted_sum
from structattn.operators.hard_attention.gumbel_softmax import gumbel_noise, gumbel_softmax
from structattn.operators.hard_attention.reference import hard_weights
from structattn.support.shapes import Float, Int, Lengths

__all__ = ["hard_attention"]

_COLDEST = torch.finfo(torch.float32).tiny


@overload
def hard_attention(
    scores: Tensor,
    values: Tensor,
    temperature: float = ...,
    *,
    sample: bool = ...,
    straight_through: bool = ...,
    noise: bool = ...,
    causal: bool = ...,
    lengths: Tensor | None = ...,
    memory_lengths: Tensor | None = ...,
    return_weights: Literal[False] = ...,
) -> tuple[Tensor, Tensor]: ...


@overload
def hard_attention(
    scores: Tensor,
    values: Tensor,
    temperature: float = ...,
    *,
    sample: bool = ...,
    straight_through: bool = ...,
    noise: bool = ...,
    causal: bool = ...,
    lengths: Tensor | None = ...,
    memory_lengths: Tensor | None = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor, Tensor]: ...


def hard_attention(
    scores: Float[Tensor, "batch heads queries keys"],
    values: Float[Tensor, "batch heads keys size"],
    temperature: float = 1.0,
    *,
    sample: bool = False,
    straight_through: bool = False,
    noise: bool = True,
    causal: bool = False,
    lengths: Lengths = None,
    memory_lengths: Lengths = None,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """Select one value for each query (the Discrete Transformer paper, section 4).

    Without ``sample``, as at test time: out_t = v_z, z = argmax_s l_ts, the lowest index in a tie. Only the chosen row
    is read, and the scores get no gradient. With ``sample``, as in training: a draw from softmax(l_t), relaxed by
    the Gumbel-softmax (Jang et al. 2016) to weights through which gradients flow,

        out_t = sum_s z_ts v_s,   z_t = softmax_s((l_ts + g_ts) / temperature),   g Gumbel noise.

    Logits and log-probabilities give the same result. Without ``noise``, g = 0, and z converges to the one-hot weights
    of test time as the temperature falls. A query whose keys are all hidden gives zeros, and zero gradients. Hidden
    keys and values do not affect a query, even if they are NaN; a NaN among its visible scores gives NaN. The noise
    comes from torch's global generator, in float32 or better.
    Cost: O(B * H * (T * S + T * d)) without ``sample``, O(B * H * T * S * d) with it; memory O(B * H * T * S).

    Args:
        scores: l, (B, H, T, S), already scaled; -inf hides a key from a query.
        values: (B, H, S, d).
        temperature: tau, at least 0; used only with ``sample``. Near 0 the weights become one-hot; at 0 (and below
            1.2e-38, which counts as 0) they are, by argmax, and the scores get no gradient.
        sample: draw, as in training.
        straight_through: with ``sample``, use one-hot z in the forward pass and the gradient of the relaxed weights in
            the backward pass.
        noise: with ``sample``, add the Gumbel noise g; False: g = 0.
        causal: query t attends to keys 0 to t only.
        lengths: the number of queries of each sequence, and of keys as well where ``memory_lengths`` is not given, so
            that T must equal S then. From there on queries give zeros and keys are hidden, forward and backward,
            whatever the arguments contain there.
        memory_lengths: the number of keys of each sequence.
        return_weights: also return z (B, H, T, S), as it was used: one-hot without ``sample``.

    Returns:
        The readings (B, H, T, d) in the dtype of the arguments (float32 where autocast lowered them), and the choices
        (B, H, T) in int64: the key with the largest l, or l + g with ``sample``; -1 where all keys are hidden and past
        a length. Then the weights if requested.

    Raises:
        ValueError: shapes, dtypes, lengths or the temperature do not fit.
    """
    require_shape("scores", scores, (None, None, None, None), "(B, H, T, S)")
    require_shape("values", values, (scores.shape[0], scores.shape[1], scores.shape[3], None), "(B, H, S, d)")
    require_temperature(temperature)
    (scores, values), dtype = computing_precision(scores=scores, values=values)
    with without_autocast(scores.device):
        scores, values = _masked(scores, values, causal, lengths, memory_lengths)
        scores = scores + gumbel_noise(scores) if sample and noise else scores
        best, choices = _argmax(scores)
        if sample and temperature >= _COLDEST:
            weights = _drawn_weights(scores, best, temperature, straight_through)
            readings = weighted_sum(weights, scores != -torch.inf, values)
            weights = torch.where(scores == -torch.inf, 0, weights) if return_weights else weights  # and its gradient
        else:
            weights = hard_weights(scores.detach()) if return_weights else scores
            readings = _gather(values, best, choices)
        readings = torch.where((choices < 0)[..., None], 0, readings)
    return (readings.to(dtype), choices, weights.to(dtype)) if return_weights else (readings.to(dtype), choices)


def _masked(
    scores: Tensor, values: Tensor, causal: bool, lengths: Tensor | None, memory_lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the scores with -inf for hidden keys, and the values with zeros past the length."""
    batch, _, queries, keys = scores.shape
    hidden = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(1) if causal else None
    if lengths is not None or memory_lengths is not None:
        ends = checked_two_lengths(lengths, memory_lengths, batch, queries, keys, scores.device)
        query_here, key_here = inside(ends[0], queries)[:, None, :, None], inside(ends[1], keys)[:, None, None]
        outside = ~(query_here & key_here)
        hidden = outside if hidden is None else outside | hidden
        values = torch.where(key_here.transpose(2, 3), values, 0)
    return scores if hidden is None else scores.masked_fill(hidden, -torch.inf), values


def require_temperature(temperature: float) -> None:
    """Raise ValueError unless 0 <= temperature < inf."""
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature={temperature}; expected 0 <= temperature < inf")


def _drawn_weights(scores: Tensor, best: Tensor, temperature: float, straight_through: bool) -> Tensor:
    weights = gumbel_softmax(scores, best, temperature)
    return hard_weights(scores.detach()) + (weights - weights.detach()) if straight_through else weights


def _argmax(
    scores: Float[Tensor, "batch heads queries keys"],
) -> tuple[Float[Tensor, "batch heads queries"], Int[Tensor, "batch heads queries"]]:
    """Return each query's largest score and its lowest index; -inf and -1 where every key is hidden.

    A NaN counts as the largest.
    """
    if scores.shape[-1] == 0:
        return scores.new_full(scores.shape[:-1], -torch.inf), scores.new_full(scores.shape[:-1], -1, dtype=torch.int64)
    best, choices = scores.detach().max(-1)
    return best, torch.where(best == -torch.inf, -1, choices)


def _gather(
    values: Float[Tensor, "batch heads keys size"],
    best: Float[Tensor, "batch heads queries"],
    choices: Int[Tensor, "batch heads queries"],
) -> Float[Tensor, "batch heads queries size"]:
    """Return the chosen rows of the values: any row where the choice is -1, NaN where its score is NaN."""
    batch, heads, keys, size = values.shape
    if keys == 0:
        return values.new_zeros(*choices.shape, keys) @ values
    first = torch.arange(batch * heads, device=values.device).view(batch, heads, 1) * keys
    rows = values.reshape(batch * heads * keys, size).index_select(0, (first + choices.clamp(min=0)).flatten())
    return rows.view(*choices.shape, size).masked_fill(best.isnan()[..., None], torch.nan)
