"""The Gumbel-softmax as a torch operator with two derivatives: Jang et al. (2016).

It takes half of the time and memory of the same formula composed of torch's differentiable operations.

Legend: l scores, -inf for hidden keys; g Gumbel noise; tau temperature; z weights. Shapes: B batch, H heads, T queries,
S keys.
"""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.registration import register


def _empty_like_first(first: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(first)


def _save_backward_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.temperature = inputs[2]


def _second_gradient(ctx: Any, second: Tensor) -> tuple[Tensor, Tensor, None]:
    """Gradients of z * (c - sum(c z)) / tau with respect to the cotangent c and to z."""
    cotangent, weights = ctx.saved_tensors
    by_cotangent = gumbel_softmax_backward(second, weights, ctx.temperature)
    sums, second_sums = ((tensor * weights).sum(-1, keepdim=True) for tensor in (cotangent, second))
    by_weights = (second * (cotangent - sums) - cotangent * second_sums) / ctx.temperature
    return by_cotangent, by_weights, None


def _backward_by_definition(cotangent: Tensor, weights: Tensor, temperature: float) -> Tensor:
    return weights * (cotangent - (cotangent * weights).sum(-1, keepdim=True)) / temperature


@register(
    "gumbel_softmax_backward",
    devices="default",
    fake=_empty_like_first,
    gradient=_second_gradient,
    save=_save_backward_inputs,
    definition=_backward_by_definition,
)
def gumbel_softmax_backward(cotangent: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Gradient of the scores: z * (c - sum(c z)) / tau."""
    gradient = torch._softmax_backward_data(cotangent, weights, -1, weights.dtype)
    return gradient if temperature == 1 else gradient.div_(temperature)


def _save_weights(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.temperature = inputs[2]


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None, None]:
    (weights,) = ctx.saved_tensors
    return gumbel_softmax_backward(cotangent, weights, ctx.temperature), None, None


def _by_definition(scores: Tensor, best: Tensor, temperature: float) -> Tensor:
    hidden = scores == -torch.inf
    below = torch.where(hidden, -torch.inf, scores - best.detach()[..., None])
    below = torch.where(hidden.all(-1, keepdim=True), 0, below)
    return torch.where(hidden, 0, torch.softmax(below / temperature, -1))


@register(
    "gumbel_softmax",
    devices="default",
    fake=_empty_like_first,
    gradient=_gradient,
    save=_save_weights,
    definition=_by_definition,
)
def gumbel_softmax(scores: Tensor, best: Tensor, temperature: float) -> Tensor:
    """z_k = exp((l_k + g_k) / tau) / sum_k' exp((l_k' + g_k') / tau), given l + g; zeros where every key is hidden.

    ``best``, the largest score of each query, is subtracted before the division, so that no temperature above zero
    overflows. It gets no gradient, because the weights do not depend on it. Cost: O(B * H * T * S).

    Args:
        scores: l + g, (B, H, T, S).
        best: (B, H, T).
        temperature: tau, above 0.
    """
    below = scores - best[..., None]  # NaN where both are -inf, and then the whole row is hidden
    below = below if temperature == 1 else below.div_(temperature)
    return torch.softmax(below, -1).masked_fill_(scores == -torch.inf, 0)


def gumbel_noise(like: Tensor) -> Tensor:
    """Draw g = -log(-log U) for each element of ``like``, U uniform between 0 and 1, from torch's generator.

    argmax_k (l_k + g_k) then follows softmax(l). (The Discrete Transformer paper prints g without the first minus sign:
    that is the negative of a Gumbel number, whose argmax follows another law.) U is kept inside the open interval, so
    that every number is finite: from -4.5 to 16.7 in float32, from -6.6 to 36.8 in float64.

    Args:
        like: gives shape, device and dtype, float32 or float64, in which the noise is drawn.
    """
    limits = torch.finfo(like.dtype)
    uniform = torch.rand(like.shape, dtype=like.dtype, device=like.device).clamp(limits.tiny, 1 - limits.eps / 2)
    return uniform.log_().neg_().log_().neg_()
