"""Softmax attention: scaled dot products, with causal masks, biases, lengths and dropout."""

import math
from typing import Literal, overload

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_two_lengths, computing_precision, require_shape, without_autocast
from structattn.operators.common.dropout import checked_rate
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.softmax_attention.cpu import softmax_attention_cpu
from structattn.operators.softmax_attention.gpu import softmax_attention_fused
from structattn.operators.softmax_attention.reference import Visibility, softmax_attention_reference, softmax_weights
from structattn.support.errors import ImplementationUnavailableError
from structattn.support.shapes import Float, Lengths

__all__ = ["softmax_attention"]


@overload
def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Tensor | None = ...,
    memory_lengths: Tensor | None = ...,
    causal: bool = ...,
    mask: Tensor | None = ...,
    dropout: float = ...,
    scale: float | None = ...,
    return_weights: Literal[False] = ...,
    implementation: Implementation = ...,
) -> Tensor: ...


@overload
def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Tensor | None = ...,
    memory_lengths: Tensor | None = ...,
    causal: bool = ...,
    mask: Tensor | None = ...,
    dropout: float = ...,
    scale: float | None = ...,
    return_weights: Literal[True],
    implementation: Implementation = ...,
) -> tuple[Tensor, Tensor]: ...


def softmax_attention(
    query: Float[Tensor, "batch heads queries size"],
    key: Float[Tensor, "batch heads keys size"],
    value: Float[Tensor, "batch heads keys value"],
    *,
    lengths: Lengths = None,
    memory_lengths: Lengths = None,
    causal: bool = False,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    return_weights: bool = False,
    implementation: Implementation = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    """Scaled dot-product attention, out_t = sum_s softmax_s(scale * q_t . k_s) v_s (Vaswani et al. 2017, equation 1).

    A query whose keys are all hidden gives zeros, and zero gradients. Hidden keys and values do not affect a query,
    even if they are NaN (on a GPU, where torch's fused kernel runs, that holds for positions past the length only).
    Cost: O(B * H * T * S * (D + E)) time; memory O(B * H * T * (D + E)) with a kernel, and O(B * H * T * S) for weights
    and for the gradient of a bias, if requested.

    Args:
        query: (B, H, T, D).
        key: (B, H, S, D).
        value: (B, H, S, E).
        lengths: the number of queries of each sequence, and of keys as well where ``memory_lengths`` is not given, so
            that T must equal S then. From there on queries give zeros and keys are hidden, forward and backward,
            whatever the arguments contain there.
        memory_lengths: the number of keys of each sequence.
        causal: query t attends to keys 0 to t only.
        mask: (..., T, S), broadcasts: booleans, true where a key is visible, or a bias added to the scores, in which
            -inf hides a key; a bias gets its gradient.
        dropout: probability of dropping a weight, drawn from torch's global generator; pass 0 outside training.
        scale: factor of the scores; 1 / sqrt(D) where None.
        return_weights: also return the weights (B, H, T, S) before dropout; gradients flow through them.
        implementation: "reference" is the definition, which alone supports double backward; "cpu" the compiled kernel,
            or torch's where that is faster; "gpu" torch's, with the weights from the definition; "auto" the best that
            can run.

    Returns:
        The outputs (B, H, T, E), or outputs and weights, in the dtype of the arguments (float32 where autocast lowered
        them on a CPU).

    Raises:
        ValueError: shapes, dtypes, lengths or rates do not fit.
        ImplementationUnavailableError: the requested implementation cannot run here.
    """
    visible = _visibility(query, key, value, lengths, memory_lengths, causal, mask, dropout)
    on_gpu = query.device.type == "cuda" and implementation in ("auto", "gpu")
    if implementation == "gpu" and not on_gpu:
        reason = f"the tensors are on {query.device.type}"
        raise ImplementationUnavailableError(f"softmax_attention: implementation 'gpu' cannot run: {reason}")
    choice = "gpu" if on_gpu else chosen_implementation("softmax_attention", implementation, query.device)
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    inputs = [query, key, value]
    if choice == "gpu" and not return_weights:
        return softmax_attention_fused(inputs, visible, scale, dropout)
    if choice == "gpu":
        return softmax_attention_fused(inputs, visible, scale, dropout), _weights(query, key, visible, scale)
    inputs, dtype = computing_precision(query=query, key=key, value=value)
    if choice == "cpu":
        seed = torch.randint(2**63 - 1, (1,), device="cpu") if dropout > 0 else None
        bias = None if visible.mask is None else _as_bias(visible.mask, inputs[0].dtype)
        pair = (visible.lengths, visible.memory_lengths)
        ends = None if pair[0] is None or pair[1] is None else torch.stack((pair[0], pair[1]))
        options = [scale, dropout, float(visible.causal), float(return_weights)]  # see ``Options``
        outputs, weights = softmax_attention_cpu(*inputs, bias, ends, seed, options)
    else:
        with without_autocast(query.device):
            outputs, weights = softmax_attention_reference(inputs, visible, scale, dropout)
    return (outputs.to(dtype), weights.to(dtype)) if return_weights else outputs.to(dtype)


def _as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask as a bias with four axes; booleans become zeros and -inf."""
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
    return mask.to(dtype)[(None,) * (4 - mask.dim())]


def _weights(query: Tensor, key: Tensor, visible: Visibility, scale: float) -> Tensor:
    """Return the weights, by the definition."""
    (query, key), dtype = computing_precision(query=query, key=key)
    with without_autocast(query.device):
        return softmax_weights(query, key, visible, scale).to(dtype)


def _visibility(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    memory_lengths: Tensor | None,
    causal: bool,
    mask: Tensor | None,
    dropout: float,
) -> Visibility:
    """Check shapes, dtypes, lengths and rates; ``lengths`` alone holds for queries and keys."""
    require_shape("query", query, (None, None, None, None), "(B, H, T, D)")
    batch, heads, time, size = query.shape
    require_shape("key", key, (batch, heads, None, size), "(B, H, S, D)")
    keys = key.shape[2]
    require_shape("value", value, (batch, heads, keys, None), "(B, H, S, E)")
    if mask is not None:
        pairs = zip(reversed(mask.shape), (keys, time, heads, batch), strict=False)
        if mask.dim() > 4 or any(have not in (1, want) for have, want in pairs):
            raise ValueError(
                f"mask has shape {tuple(mask.shape)}; expected a shape that broadcasts to {(batch, heads, time, keys)}"
            )
        if mask.dtype != torch.bool:
            computing_precision(query=query, mask=mask)  # which refuses dtypes that do not fit
    checked_rate(dropout)
    if lengths is None and memory_lengths is None:
        return Visibility(None, None, causal, mask)
    ends = checked_two_lengths(lengths, memory_lengths, batch, time, keys, query.device)
    return Visibility(ends[0], ends[0] if memory_lengths is None else ends[1], causal, mask)
