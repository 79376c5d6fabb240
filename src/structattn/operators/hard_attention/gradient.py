"""The Gumbel-softmax as a torch operator with its gradient: Jang et al. (2016).

Composed of torch's differentiable operations it would take twice the time and the memory.

Legend: l scores, -inf where a query may not see a key; g Gumbel noise; tau temperature; z weights. Shapes: B batch,
H heads, T queries, S keys.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

_FORWARD = "structattn::gumbel_softmax"
_BACKWARD = "structattn::gumbel_softmax_backward"
torch.library.define(_FORWARD, "(Tensor scores, Tensor best, float temperature) -> Tensor")
torch.library.define(_BACKWARD, "(Tensor cotangent, Tensor weights, float temperature) -> Tensor")


def gumbel_softmax(
    scores: Float[Tensor, "batch heads queries keys"], best: Float[Tensor, "batch heads queries"], temperature: float
) -> Float[Tensor, "batch heads queries keys"]:
    """z_k = exp((l_k + g_k) / tau) / sum_k' exp((l_k' + g_k') / tau), given l + g; zeros where a query sees nothing.

    The largest, ``best``, is subtracted before the division, so that no temperature above zero overflows: what is left
    is at most zero. It gets no gradient, because the weights do not depend on it. Cost: O(B * H * T * S).
    """
    weights: Tensor = torch.ops.structattn.gumbel_softmax(scores, best, temperature)
    return weights


@torch.library.impl(_FORWARD, "default")
def _forward(scores: Tensor, best: Tensor, temperature: float) -> Tensor:
    below = scores - best[..., None]  # NaN where both are -inf, and then the whole row is hidden
    below = below if temperature == 1 else below.div_(temperature)
    return torch.softmax(below, -1).masked_fill_(scores == -torch.inf, 0)


@torch.library.impl(_BACKWARD, "default")
def _backward(cotangent: Tensor, weights: Tensor, temperature: float) -> Tensor:
    gradient = torch._softmax_backward_data(cotangent, weights, -1, weights.dtype)
    return gradient if temperature == 1 else gradient.div_(temperature)


def _fake_forward(scores: Tensor, best: Tensor, temperature: float) -> Tensor:
    return torch.empty_like(scores)


def _fake_backward(cotangent: Tensor, weights: Tensor, temperature: float) -> Tensor:
    return torch.empty_like(cotangent)


def _save_weights(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.temperature = inputs[2]


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None, None]:
    (weights,) = ctx.saved_tensors
    return torch.ops.structattn.gumbel_softmax_backward(cotangent, weights, ctx.temperature), None, None


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.temperature = inputs[2]


def _second_gradient(ctx: Any, second: Tensor) -> tuple[Tensor, Tensor, None]:
    """Of z * (c - sum(c z)) / tau with respect to the cotangent c and to z."""
    cotangent, weights = ctx.saved_tensors
    by_cotangent = torch.ops.structattn.gumbel_softmax_backward(second, weights, ctx.temperature)
    sums, second_sums = ((tensor * weights).sum(-1, keepdim=True) for tensor in (cotangent, second))
    by_weights = (second * (cotangent - sums) - cotangent * second_sums) / ctx.temperature
    return by_cotangent, by_weights, None


torch.library.register_fake(_FORWARD, _fake_forward)
torch.library.register_fake(_BACKWARD, _fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_weights)
torch.library.register_autograd(_BACKWARD, _second_gradient, setup_context=_save_inputs)
