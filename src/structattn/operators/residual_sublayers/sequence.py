"""Sublayers in sequence: one call of the kernel forward, one backward, because a call takes as long as a sublayer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.dropout import random_integers
from structattn.operators.common.kernels import kernel_module
from structattn.operators.common.registration import refuse_double_backward
from structattn.operators.residual_sublayers.cpu import AttentionOptions, FeedForwardOptions
from structattn.operators.residual_sublayers.reference import SublayerWeights

_NUM_WEIGHTS = len(SublayerWeights._fields)


def run_sequence(
    x: Tensor,
    sublayers: Sequence[tuple[SublayerWeights, AttentionOptions | FeedForwardOptions]],
    lengths: Tensor | None,
) -> Tensor:
    """Apply sublayers one after the other, with the results and random numbers of their operators."""
    weights = [weight for own, _ in sublayers for weight in own]
    units = [0 if isinstance(options, AttentionOptions) else len(own.first) for own, options in sublayers]
    plan = kernel_module().ResidualSequence(x.shape, units, [options for _, options in sublayers])
    drawn = random_integers(plan.draws) if plan.draws else None
    y: Tensor = _Sequence.apply(x, plan, lengths, drawn, *weights)  # type: ignore[no-untyped-call]  # torch's
    return y


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        plan: Any,
        lengths: Tensor | None,
        drawn: Tensor | None,
        *weights: Tensor | None,
    ) -> Tensor:
        x, lengths = x.contiguous(), None if lengths is None else lengths.contiguous()
        given = [None if weight is None else weight.contiguous() for weight in weights]
        kept, y = x.new_empty(plan.kept), x.new_empty(x.shape)
        run = plan.forward_float32 if x.dtype == torch.float32 else plan.forward_float64
        run(x.data_ptr(), _addresses(given), *map(_address, (lengths, drawn, kept, y)), torch.get_num_threads())
        ctx.plan = plan
        ctx.save_for_backward(x, lengths, drawn, kept, *given)
        return y

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        run = _Gradients.apply if torch.is_grad_enabled() else _gradients
        grad_x, *found = run(ctx.plan, cotangent, *ctx.saved_tensors)
        return grad_x, None, None, None, *found


class _Gradients(torch.autograd.Function):
    """``_gradients`` with a refusal of second derivatives."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor | None, ...]:
        return _gradients(*inputs)

    backward = staticmethod(refuse_double_backward("residual_sublayers", "CPU"))


def _gradients(
    plan: Any,
    cotangent: Tensor,
    x: Tensor,
    lengths: Tensor | None,
    drawn: Tensor | None,
    kept: Tensor,
    *weights: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x and of the weights."""
    cotangent, grad_x = cotangent.contiguous(), x.new_empty(x.shape)
    gradients = [None if weight is None else x.new_empty(weight.shape) for weight in weights]
    run = plan.backward_float32 if x.dtype == torch.float32 else plan.backward_float64
    run(
        x.data_ptr(),
        _addresses(weights),
        *map(_address, (lengths, drawn, kept, cotangent, grad_x)),
        _addresses(gradients),
        torch.get_num_threads(),
    )
    return grad_x, *gradients


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _addresses(weights: Sequence[Tensor | None]) -> list[list[int]]:
    flat = [0 if weight is None else weight.data_ptr() for weight in weights]
    return [flat[first : first + _NUM_WEIGHTS] for first in range(0, len(flat), _NUM_WEIGHTS)]
