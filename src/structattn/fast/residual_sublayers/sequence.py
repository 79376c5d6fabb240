"""Sublayers in sequence: one call of the kernel forward, one backward, because a call takes as long as a sublayer."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._utils import _unflatten_dense_tensors

from structattn.operators.common.dropout import random_integers
from structattn.operators.common.kernels import contiguous, kernel_module
from structattn.operators.common.registration import refuse_double_backward


class SublayerWeights(NamedTuple):
    """The parameters of a sublayer.

    Args:
        scale: of the layer norm, (d,).
        shift: of the layer norm, (d,); None: zeros.
        first: the projection to queries, keys and values, (3 d, d), or to hidden units, (f, d).
        first_bias: None: zeros.
        second: the output projection, (d, d) or (d, f).
        second_bias: None: zeros.
    """

    scale: Tensor
    shift: Tensor | None
    first: Tensor
    first_bias: Tensor | None
    second: Tensor
    second_bias: Tensor | None


class AttentionOptions(NamedTuple):
    """Numbers of heads; 1 if causal; epsilon of the norm; dropout rate of the weights; see ``dropped_steps``."""

    num_heads: float
    causal: float
    epsilon: float
    rate: float
    dropped: float


class FeedForwardOptions(NamedTuple):
    """Epsilon of the norm, and for hidden units and for the output what ``dropped_steps`` returns."""

    epsilon: float
    hidden_dropped: float
    dropped: float


_NUM_WEIGHTS = len(SublayerWeights._fields)


def run_sequence(
    x: Tensor,
    sublayers: Sequence[tuple[SublayerWeights, AttentionOptions | FeedForwardOptions]],
    lengths: Tensor | None,
) -> Tensor:
    """Apply sublayers one after the other, with the random numbers of the modules."""
    weights = [weight for own, _ in sublayers for weight in own]
    units = [0 if isinstance(options, AttentionOptions) else len(own.first) for own, options in sublayers]
    plan = x.shape, units, [options for _, options in sublayers]
    y: Tensor = _Sequence.apply(x, plan, lengths, *weights)  # type: ignore[no-untyped-call]  # torch's
    return y


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: tuple[Any, ...], lengths: Tensor | None, *weights: Tensor | None) -> Tensor:
        sequence = kernel_module().ResidualSequence(*plan)  # not kept: graphs may outlive the module
        drawn = random_integers(sequence.draws) if sequence.draws else None
        x, given = x.contiguous(), contiguous(lengths, *weights)
        kept, y = x.new_empty(sequence.kept), x.new_empty(x.shape)
        run = sequence.forward_float32 if x.dtype == torch.float32 else sequence.forward_float64
        of_weights = _by_sublayer(addresses(given[1:]))
        run(x.data_ptr(), of_weights, *addresses((given[0], drawn, kept, y)), torch.get_num_threads())
        ctx.plan = plan
        ctx.save_for_backward(x, given[0], drawn, kept, *given[1:])
        return y

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, *gradients = gradients_once(_gradients, ctx.plan, cotangent, *ctx.saved_tensors)
        return grad_x, None, None, *gradients


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
    gradients = empty_gradients(weights, x)
    sequence = kernel_module().ResidualSequence(*plan)
    run = sequence.backward_float32 if x.dtype == torch.float32 else sequence.backward_float64
    run(
        x.data_ptr(),
        _by_sublayer(addresses(weights)),
        *addresses((lengths, drawn, kept, cotangent, grad_x)),
        _by_sublayer(addresses(gradients)),
        torch.get_num_threads(),
    )
    return grad_x, *gradients


def addresses(tensors: Sequence[Tensor | None]) -> list[int]:
    """Return the addresses of tensors, 0 for None."""
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _by_sublayer(of_weights: list[int]) -> list[list[int]]:
    return [of_weights[first : first + _NUM_WEIGHTS] for first in range(0, len(of_weights), _NUM_WEIGHTS)]


def empty_gradients(weights: Sequence[Tensor | None], like: Tensor) -> list[Tensor | None]:
    """Allocate, at once, the gradient of each weight that is present."""
    present = [weight for weight in weights if weight is not None]
    memory = like.new_empty(sum(map(Tensor.numel, present)))
    pieces = iter(_unflatten_dense_tensors(memory, present))  # type: ignore[no-untyped-call]  # torch's
    return [None if weight is None else next(pieces) for weight in weights]


def gradients_once(function: Callable[..., Any], plan: Any, cotangent: Tensor, *saved: Tensor | None) -> Any:
    """Return ``function(plan, cotangent, *saved)``, the gradients of a kernel, with a refusal of second derivatives.

    Raises:
        RuntimeError: ``cotangent`` is a batch of gradients.
    """
    if torch._C._functorch.is_legacy_batchedtensor(cotangent):
        raise RuntimeError(
            "sublayers in one kernel call take one gradient at a time, not a batch of them (is_grads_batched, "
            "vectorize); torch.func.jacrev and torch.func.vmap can be used instead"
        )
    run = partial(_Once.apply, function) if torch.is_grad_enabled() else function
    return run(plan, cotangent, *saved)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: Callable[..., tuple[Tensor | None, ...]], *inputs: Any
    ) -> tuple[Tensor | None, ...]:
        return function(*inputs)

    backward = staticmethod(refuse_double_backward("residual_sublayers", "CPU"))
