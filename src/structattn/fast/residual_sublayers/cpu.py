"""The residual sublayers on a CPU, by the compiled kernel."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from structattn.fast.residual_sublayers.reference import (
    Dropout,
    SublayerWeights,
    residual_feedforward_reference,
)
from structattn.operators.common.kernels import contiguous, kernel_for, kernel_module
from structattn.operators.common.registration import Batching, refuse_double_backward, register

_ROW_UNIT = 16  # rows that are kept for the backward pass are padded, as in common/small_matrix.h
_WEIGHTS = SublayerWeights._fields
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


class AttentionOptions(NamedTuple):
    """Numbers of heads; 1 if causal; epsilon of the norm; dropout rate of the weights; see ``Dropout.dropped``.

    One argument of the operator, because torch's cost of a call grows with the square of the number of arguments.
    """

    num_heads: float
    causal: float
    epsilon: float
    rate: float
    dropped: float


class FeedForwardOptions(NamedTuple):
    """Epsilon of the norm, and for hidden units and for the output ``Dropout.dropped``."""

    epsilon: float
    hidden_dropped: float
    dropped: float


def _addresses(tensors: Sequence[Tensor | None]) -> list[int]:
    """Return 0 for tensors that are absent: None or empty."""
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _empty_like_parameters(x: Tensor, *weights: Tensor | None) -> Gradients:
    """Allocate the gradients of x and of the weights; that of a weight that is None is empty."""
    empty = [x.new_empty(x.shape)]
    empty += [x.new_empty(0) if weight is None else x.new_empty(weight.shape) for weight in weights]
    return tuple(empty)  # type: ignore[return-value]  # seven


def _attention_call(
    x: Tensor, extras: Sequence[Tensor | None], kept: tuple[Tensor, Tensor], options: list[float]
) -> Any:
    """Return the arguments of a call; ``extras`` are lengths, seed and mask numbers."""
    num_heads, causal, epsilon, rate, dropped = options
    sizes, addresses = (*x.shape, int(num_heads)), _addresses((*extras, *kept))
    return kernel_module().ResidualAttentionCall(sizes, bool(causal), epsilon, rate, int(dropped), addresses)


def _fake_attention_backward(cotangent: Tensor, x: Tensor, *rest: Any) -> Gradients:
    return _empty_like_parameters(x, *rest[:6])


def attention_backward(
    cotangent: Tensor,
    x: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    first: Tensor,
    first_bias: Tensor | None,
    second: Tensor,
    second_bias: Tensor | None,
    lengths: Tensor | None,
    seed: Tensor | None,
    numbers: Tensor | None,
    projected: Tensor,
    readings: Tensor,
    options: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x and of the weights; that of a missing one is empty."""
    cotangent, x = cotangent.contiguous(), x.contiguous()
    given = contiguous(scale, shift, first, first_bias, second, second_bias)
    extras = contiguous(lengths, seed, numbers)
    results = _empty_like_parameters(x, *given)
    kernel_for("residual_attention_backward", x.dtype)(
        _attention_call(x, extras, (projected, readings), options),
        x.data_ptr(),
        _addresses(given),
        cotangent.data_ptr(),
        results[0].data_ptr(),
        _addresses(results[1:]),
        torch.get_num_threads(),
    )
    return results


residual_attention_backward = register(
    "residual_attention_backward",
    fake=_fake_attention_backward,
    gradient=refuse_double_backward("residual_attention", "CPU"),
    batching=Batching(shared=("cotangent", "x", *_WEIGHTS)),
)(attention_backward)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.options = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output[1:])


def _attention_gradient(ctx: Any, cotangent: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if cotangent is None:
        return (None,) * 11
    tensors = ctx.saved_tensors
    gradients = residual_attention_backward(cotangent, *tensors, ctx.options)
    return (
        *(None if x is None else gradient for gradient, x in zip(gradients, tensors, strict=False)),
        None,
        None,
        None,
        None,
    )


def _fake_attention(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, size = x.shape
    kept = [x.new_empty(batch, time, -(-parts * size // _ROW_UNIT) * _ROW_UNIT) for parts in (3, 1)]
    return x.new_empty(x.shape), kept[0], kept[1]


def attention_forward(
    x: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    first: Tensor,
    first_bias: Tensor | None,
    second: Tensor,
    second_bias: Tensor | None,
    lengths: Tensor | None,
    seed: Tensor | None,
    numbers: Tensor | None,
    options: list[float],
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, and for the backward pass W_1 LayerNorm(x) + b_1 and the outputs of the heads, in padded rows.

    Args:
        x: (B, T, d), float32 or float64, checked.
        scale: of ``SublayerWeights``, as the next ones.
        shift: or None.
        first: (3 d, d).
        first_bias: or None.
        second: (d, d).
        second_bias: or None.
        lengths: (B,) int64, or None.
        seed: (1,) int64; required if weights of attention are dropped.
        numbers: of ``Dropout``.
        options: see ``AttentionOptions``.
    """
    if options[3] > 0 and seed is None:
        raise ValueError(f"dropout={options[3]} needs a seed")
    x, given = x.contiguous(), contiguous(scale, shift, first, first_bias, second, second_bias)
    extras = contiguous(lengths, seed, numbers)
    y, projected, readings = _fake_attention(x)
    kernel_for("residual_attention_forward", x.dtype)(
        _attention_call(x, extras, (projected, readings), options),
        x.data_ptr(),
        _addresses(given),
        y.data_ptr(),
        torch.get_num_threads(),
    )
    return y, projected, readings


residual_attention_cpu = register(
    "residual_attention",
    fake=_fake_attention,
    gradient=_attention_gradient,
    save=_save,
    batching=Batching(shared=("x", *_WEIGHTS)),
)(attention_forward)


def _feedforward_call(
    x: Tensor, units: int, masks: Sequence[Tensor | None], hidden: Tensor, options: list[float]
) -> Any:
    epsilon, *dropped = options
    addresses = _addresses((*masks, hidden))
    sizes = (x.shape[0] * x.shape[1], x.shape[2], units)
    return kernel_module().ResidualFeedForwardCall(sizes, epsilon, *map(int, dropped), addresses)


def feedforward_backward(
    cotangent: Tensor,
    x: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    first: Tensor,
    first_bias: Tensor | None,
    second: Tensor,
    second_bias: Tensor | None,
    hidden_numbers: Tensor | None,
    numbers: Tensor | None,
    hidden: Tensor,
    options: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x and of the weights; that of a missing one is empty."""
    cotangent, x = cotangent.contiguous(), x.contiguous()
    given = contiguous(scale, shift, first, first_bias, second, second_bias)
    masks = contiguous(hidden_numbers, numbers)
    results = _empty_like_parameters(x, *given)
    kernel_for("residual_feedforward_backward", x.dtype)(
        _feedforward_call(x, len(first), masks, hidden, options),
        x.data_ptr(),
        _addresses(given),
        cotangent.data_ptr(),
        results[0].data_ptr(),
        _addresses(results[1:]),
        torch.get_num_threads(),
    )
    return results


residual_feedforward_backward = register(
    "residual_feedforward_backward",
    fake=_fake_attention_backward,
    gradient=refuse_double_backward("residual_feedforward", "CPU"),
    batching=Batching(shared=("cotangent", "x", *_WEIGHTS)),
)(feedforward_backward)


def _feedforward_gradient(ctx: Any, cotangent: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if cotangent is None:
        return (None,) * 10
    tensors = ctx.saved_tensors
    if torch.is_grad_enabled():  # for double backward
        return *_by_definition(cotangent, tensors, ctx.options), None, None, None
    gradients = residual_feedforward_backward(cotangent, *tensors, ctx.options)
    return *(None if x is None else gradient for gradient, x in zip(gradients, tensors, strict=False)), None, None, None


def _by_definition(cotangent: Tensor, tensors: tuple[Tensor, ...], options: list[float]) -> list[Tensor | None]:
    """Return gradients that can be differentiated.

    Of aliases: x may have come from the same weights in an earlier sublayer, whose gradients are not asked for here.
    """
    aliases = [None if tensor is None else tensor.view_as(tensor) for tensor in tensors[:7]]
    x, *weights = aliases
    assert x is not None
    epsilon, *dropped = options
    hidden_mask, mask = (Dropout(tensors[7 + i], int(count)) for i, count in enumerate(dropped))
    y = residual_feedforward_reference(x, SublayerWeights(*weights), hidden_mask, mask, epsilon)
    wanted = [tensor for tensor in aliases if tensor is not None and tensor.requires_grad]
    found = iter(torch.autograd.grad(y, wanted, cotangent, create_graph=True))
    return [next(found) if tensor is not None and tensor.requires_grad else None for tensor in aliases]


def _fake_feedforward(x: Tensor, scale: Tensor, shift: Tensor | None, first: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    units = -(-first.shape[0] // _ROW_UNIT) * _ROW_UNIT
    return x.new_empty(x.shape), x.new_empty(x.shape[0], x.shape[1], units)


def feedforward_forward(
    x: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    first: Tensor,
    first_bias: Tensor | None,
    second: Tensor,
    second_bias: Tensor | None,
    hidden_numbers: Tensor | None,
    numbers: Tensor | None,
    options: list[float],
) -> tuple[Tensor, Tensor]:
    """The output, and for the backward pass the hidden units after dropout, in padded rows.

    Args:
        x: (B, T, d), float32 or float64, checked.
        scale: of ``SublayerWeights``, as the next ones.
        shift: or None.
        first: (f, d).
        first_bias: or None.
        second: (d, f).
        second_bias: or None.
        hidden_numbers: of ``Dropout`` for the hidden units.
        numbers: of ``Dropout`` for the output.
        options: see ``FeedForwardOptions``.
    """
    x, given = x.contiguous(), contiguous(scale, shift, first, first_bias, second, second_bias)
    masks = contiguous(hidden_numbers, numbers)
    y, hidden = _fake_feedforward(x, scale, shift, first)
    kernel_for("residual_feedforward_forward", x.dtype)(
        _feedforward_call(x, len(first), masks, hidden, options),
        x.data_ptr(),
        _addresses(given),
        y.data_ptr(),
        torch.get_num_threads(),
    )
    return y, hidden


residual_feedforward_cpu = register(
    "residual_feedforward",
    fake=_fake_feedforward,
    gradient=_feedforward_gradient,
    save=_save,
    batching=Batching(shared=("x", *_WEIGHTS)),
)(feedforward_forward)
