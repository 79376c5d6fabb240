"""Sublayers in sequence: one call of the kernel forward, one backward, because a call takes as long as a sublayer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _unflatten_dense_tensors

from structattn.fast.residual_sublayers.cpu import AttentionOptions, FeedForwardOptions
from structattn.fast.residual_sublayers.reference import SublayerWeights
from structattn.operators.common.dropout import random_integers
from structattn.operators.common.kernels import kernel_module
from structattn.operators.common.registration import refuse_double_backward

_NUM_WEIGHTS = len(SublayerWeights._fields)


def run_sequence(
    x: Tensor,
    sublayers: Sequence[tuple[SublayerWeights, AttentionOptions | FeedForwardOptions]],
    lengths: Tensor | None,
) -> Tensor:
    """Apply sublayers one after the other, with the results and random numbers of their operators."""
    weights = [weight for own, _ in sublayers for weight in own]
    units = [0 if isinstance(options, AttentionOptions) else len(own.first) for own, options in sublayers]
    plan = x.shape, units, [options for _, options in sublayers]
    y: Tensor = _Sequence.apply(x, plan, lengths, *weights)  # type: ignore[no-untyped-call]  # torch's
    return y


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        plan: tuple[Any, ...],
        lengths: Tensor | None,
        *weights: Tensor | None,
    ) -> Tensor:
        sequence = kernel_module().ResidualSequence(
            *plan
        )  # not kept for the backward pass: graphs may outlive the module
        drawn = random_integers(sequence.draws) if sequence.draws else None
        x, lengths = x.contiguous(), None if lengths is None else lengths.contiguous()
        given = [None if weight is None else weight.contiguous() for weight in weights]
        kept, y = x.new_empty(sequence.kept), x.new_empty(x.shape)
        run = sequence.forward_float32 if x.dtype == torch.float32 else sequence.forward_float64
        run(x.data_ptr(), _addresses(given), *map(_address, (lengths, drawn, kept, y)), torch.get_num_threads())
        ctx.plan = plan
        ctx.save_for_backward(x, lengths, drawn, kept, *given)
        return y

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        if torch._C._functorch.is_legacy_batchedtensor(cotangent):
            raise RuntimeError(
                "sublayers in one kernel call take one gradient at a time, not a batch of them (is_grads_batched, "
                "vectorize); torch.func.jacrev and torch.func.vmap can be used instead"
            )
        run = _Gradients.apply if torch.is_grad_enabled() else _gradients
        grad_x, *found = run(ctx.plan, cotangent, *ctx.saved_tensors)
        return grad_x, None, None, *found


class _Gradients(torch.autograd.Function):
    """``_gradients`` with a refusal of second derivatives."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor | None, ...]:
        return _gradients(*inputs)

    backward = staticmethod(refuse_double_backward("residual_sublayers", "CPU"))


def _gradients(
    plan: tuple[Any, ...],
    cotangent: Tensor,
    x: Tensor,
    lengths: Tensor | None,
    drawn: Tensor | None,
    kept: Tensor,
    *weights: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x and of the weights."""
    cotangent, grad_x = cotangent.contiguous(), x.new_empty(x.shape)
    present = [weight for weight in weights if weight is not None]
    memory = x.new_empty(sum(map(Tensor.numel, present)))  # one allocation
    pieces = iter(_unflatten_dense_tensors(memory, present))  # type: ignore[no-untyped-call]  # torch's
    gradients = [None if weight is None else next(pieces) for weight in weights]
    sequence = kernel_module().ResidualSequence(*plan)
    run = sequence.backward_float32 if x.dtype == torch.float32 else sequence.backward_float64
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
