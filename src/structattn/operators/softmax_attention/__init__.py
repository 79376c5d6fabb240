"""Softmax attention: scaled dot products, with causal masks, lengths and dropout."""

import math
from typing import Literal, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, require_alike, require_shape
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.common.precision import computing_precision
from structattn.operators.softmax_attention.fused import softmax_attention_fused
from structattn.operators.softmax_attention.gradient import softmax_attention_op
from structattn.operators.softmax_attention.reference import softmax_attention_reference
from structattn.support.errors import ImplementationUnavailableError

__all__ = ["softmax_attention"]


@overload
def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Tensor | None = ...,
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
    lengths: Int[Tensor, " batch"] | None = None,
    causal: bool = False,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    return_weights: bool = False,
    implementation: Implementation = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    """Scaled dot-product attention, out_t = sum_s softmax_s(scale * q_t . k_s) v_s (Vaswani et al. 2017, equation 1).

    A query that may see no key gives zeros, and zero gradients. What a query may not see cannot reach it, not even NaN
    (on a GPU, where torch's fused kernel runs, that holds for positions past the length only).
    Cost: O(B * H * T * S * (D + E)) time; memory O(B * H * T * (D + E)) with a kernel, O(B * H * T * S) without.

    Args:
        query: (B, H, T, D).
        key: (B, H, S, D).
        value: (B, H, S, E).
        lengths: the number of positions of each sequence, for queries and keys alike, so that T must equal S. From
            there on positions are not seen and give zeros, forward and backward, whatever the arguments hold there.
        causal: query t sees keys 0 to t only.
        mask: (..., T, S), which keys a query sees (true), or what is added to its scores (-inf hides); broadcasts.
        dropout: rate at which weights are dropped and the others scaled up, by torch's global generator; give 0 outside
            training.
        scale: factor of the scores; 1 / sqrt(D) where None.
        return_weights: also return the weights (B, H, T, S), as they are before dropout.
        implementation: "reference" is the definition, which serves masks and weights on a CPU, too, and alone has a
            second derivative; "cpu" the compiled kernel; "gpu" torch's; "auto" the best that can run.

    Returns:
        The outputs (B, H, T, E), or outputs and weights, in the dtype of the arguments (float32 where autocast lowered
        them on a CPU).

    Raises:
        ValueError: shapes, dtypes, lengths or rates do not fit.
        ImplementationUnavailableError: the implementation asked for cannot run here.
    """
    _check(query, key, value, mask, dropout)
    choice = _choice(implementation, query.device, mask is not None, return_weights)
    if lengths is not None:
        lengths = _shared_lengths(lengths, query, key)
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    if choice == "gpu":
        return softmax_attention_fused([query, key, value], lengths, causal, mask, scale, dropout)
    inputs, dtype = computing_precision(query=query, key=key, value=value)
    if choice == "cpu":
        seed = torch.randint(2**63 - 1, (1,)) if dropout > 0 else None
        return softmax_attention_op(inputs, lengths, seed, causal, scale, dropout).to(dtype)
    with torch.autocast(query.device.type, enabled=False):
        outputs, weights = softmax_attention_reference(inputs, lengths, causal, mask, scale, dropout)
    return (outputs.to(dtype), weights.to(dtype)) if return_weights else outputs.to(dtype)


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> None:
    require_shape("query", query, (None, None, None, None), "(B, H, T, D)")
    batch, heads, time, size = query.shape
    require_shape("key", key, (batch, heads, None, size), "(B, H, S, D)")
    keys = key.shape[2]
    require_shape("value", value, (batch, heads, keys, None), "(B, H, S, E)")
    if mask is not None:
        pairs = zip(reversed(mask.shape), (keys, time, heads, batch), strict=False)
        if mask.dim() > 4 or any(have not in (1, want) for have, want in pairs):
            raise ValueError(
                f"mask has shape {tuple(mask.shape)}; expected what broadcasts to {(batch, heads, time, keys)}"
            )
        if mask.dtype != torch.bool:
            require_alike(query=query, mask=mask)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout={dropout}; expected 0 <= dropout < 1")


def _shared_lengths(lengths: Tensor, query: Tensor, key: Tensor) -> Tensor:
    batch, time = query.shape[0], query.shape[2]
    if time != key.shape[2]:
        raise ValueError(
            f"lengths hold for queries and keys alike, but there are {time} queries and {key.shape[2]} keys; use mask"
        )
    return checked_lengths(lengths, batch, time, query.device)


def _choice(implementation: Implementation, device: torch.device, masked: bool, weights: bool) -> str:
    """Which of "reference", "cpu" and "gpu" runs."""
    on_gpu = device.type == "cuda"
    if implementation == "gpu" and (weights or not on_gpu):
        reason = "it returns no weights" if on_gpu else f"the tensors are on {device.type}"
        raise ImplementationUnavailableError(f"softmax_attention: implementation 'gpu' cannot run: {reason}")
    if implementation == "gpu" or (implementation == "auto" and on_gpu and not weights):
        return "gpu"
    choice = chosen_implementation("softmax_attention", implementation, device)
    if choice == "cpu" and (masked or weights):
        if implementation == "cpu":
            reason = "it takes no mask" if masked else "it returns no weights"
            raise ImplementationUnavailableError(f"softmax_attention: implementation 'cpu' cannot run: {reason}")
        return "reference"
    return choice
