"""Sublayers in sequence as one function of autograd, of which each call takes as long as a small sublayer."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from structattn.operators.residual_sublayers.cpu import (
    attention_backward,
    attention_forward,
    feedforward_backward,
    feedforward_forward,
    residual_attention_backward,
    residual_attention_cpu,
    residual_feedforward_backward,
    residual_feedforward_cpu,
)
from structattn.operators.residual_sublayers.reference import SublayerWeights

_NUM_WEIGHTS = len(SublayerWeights._fields)


class SublayerKind(NamedTuple):
    """The functions of a kind of sublayer.

    Args:
        operator: with derivatives; returns the output, and what is kept for the backward pass.
        forward: the same without derivatives.
        backward: from the cotangent, the arguments of ``forward`` and what it kept, to the gradients of x and weights.
        backward_operator: the same, with its refusal of second derivatives.
    """

    operator: Callable[..., tuple[Tensor, ...]]
    forward: Callable[..., tuple[Tensor, ...]]
    backward: Callable[..., tuple[Tensor, ...]]
    backward_operator: Callable[..., tuple[Tensor, ...]]


ATTENTION = SublayerKind(residual_attention_cpu, attention_forward, attention_backward, residual_attention_backward)
FEEDFORWARD = SublayerKind(
    residual_feedforward_cpu, feedforward_forward, feedforward_backward, residual_feedforward_backward
)


class SublayerCall(NamedTuple):
    """The arguments of a sublayer's operator, except for x.

    Args:
        kind: the functions.
        weights: the parameters.
        extras: lengths and random numbers; without derivatives.
        options: numbers.
    """

    kind: SublayerKind
    weights: SublayerWeights
    extras: tuple[Tensor | None, ...]
    options: list[float]


def run_one(x: Tensor, call: SublayerCall) -> Tensor:
    """Apply a sublayer by its operator."""
    return call.kind.operator(x, *call.weights, *call.extras, call.options)[0]


def run_sequence(x: Tensor, calls: Sequence[SublayerCall]) -> Tensor:
    """Apply sublayers one after the other, with the results of their operators."""
    weights = [weight for call in calls for weight in call.weights]
    y: Tensor = _Sequence.apply(x, calls, *weights)  # type: ignore[no-untyped-call]  # torch's
    return y


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, calls: Sequence[SublayerCall], *weights: Tensor | None) -> Tensor:
        saved: list[Tensor | None] = []
        ctx.calls = []  # kind, number of saved tensors, options
        for kind, own_weights, extras, options in calls:
            y, *kept = kind.forward(x, *own_weights, *extras, options)
            of_call = [x, *own_weights, *extras, *kept]
            ctx.calls.append((kind, len(of_call), options))
            saved += of_call
            x = y
        ctx.save_for_backward(*saved)
        return x

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        rest, found = list(ctx.saved_tensors), list[Tensor | None]()
        direct = not (torch.is_grad_enabled() or torch.compiler.is_compiling())
        for kind, count, options in reversed(ctx.calls):
            arguments = rest[-count:]
            del rest[-count:]
            backward = kind.backward if direct else kind.backward_operator
            cotangent, *of_weights = backward(cotangent, *arguments, options)
            weights = arguments[1 : 1 + _NUM_WEIGHTS]
            found[:0] = [None if own is None else new for own, new in zip(weights, of_weights, strict=True)]
        return cotangent, None, *found
