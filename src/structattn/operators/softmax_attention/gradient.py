"""The compiled softmax attention as a torch operator with its gradient."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from structattn.operators.common.kernels import kernel_for

_FORWARD = "structattn::softmax_attention"
_BACKWARD = "structattn::softmax_attention_backward"
_STORED = "structattn::softmax_attention_stored"
_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? ends, Tensor? seed"
# Defined by schema, not by the custom_op decorator, which would take longer than a small kernel. All options are one
# argument (``_Options``), because what torch does for each call grows with the square of their number.
_OPTIONS = "float[4] options"
torch.library.define(_FORWARD, f"({_INPUTS}, {_OPTIONS}) -> (Tensor, Tensor)")
torch.library.define(
    _BACKWARD,
    f"(Tensor cotangent, Tensor? weights_cotangent, {_INPUTS}, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    _STORED, "(Tensor query, Tensor keys, Tensor values, Tensor slots, Tensor? ends, float scale) -> Tensor"
)

_NO_VIEW = (0, 0, 0, 0)


class _Options(NamedTuple):
    """Scale, rate of dropout, and 1 for true: causal; the weights or the gradient of the bias are wanted."""

    scale: float
    dropout: float
    causal: float
    wanted: float


def softmax_attention_op(
    inputs: list[Tensor],
    bias: Tensor | None,
    ends: Tensor | None,
    seed: Tensor | None,
    scale: float,
    dropout: float,
    causal: bool,
    return_weights: bool,
) -> tuple[Tensor, Tensor]:
    """Outputs (B, H, T, E) and weights (B, H, T, S), empty unless asked for, by the compiled kernel.

    Args:
        inputs: query, key and value in float32 or float64 on a CPU, checked.
        bias: of the same dtype, with four axes, which broadcast to (B, H, T, S).
        ends: (2, B) int64, the lengths of queries and of keys.
        seed: (1,) int64, which decides which weights are dropped; must be given where ``dropout`` > 0.
        scale: factor of the scores.
        dropout: rate.
        causal: query t sees keys 0 to t only.
        return_weights: whether the weights are wanted.
    """
    options = _Options(scale, dropout, float(causal), float(return_weights))
    results: tuple[Tensor, Tensor] = torch.ops.structattn.softmax_attention(*inputs, bias, ends, seed, options)
    return results


def softmax_attention_stored_op(
    query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, ends: Tensor | None, scale: float
) -> Tensor:
    """Outputs (B, H, 1, E) by the compiled kernel, without gradients.

    Args:
        query: (B, H, 1, D) in float32 or float64 on a CPU, checked.
        keys: (N, H, D).
        values: (N, H, E).
        slots: (B, S) int64, the rows that are each sequence's keys and values.
        ends: (B,) int64, how many of them count; all where None.
        scale: factor of the scores.

    Raises:
        IndexError: a slot is not one of 0 to N - 1.
    """
    outputs: Tensor = torch.ops.structattn.softmax_attention_stored(query, keys, values, slots, ends, scale)
    return outputs


def _rows(tensor: Tensor) -> Tensor:
    """The tensor itself where its last axis is contiguous, which is all that the kernel asks for."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _empty(like: Tensor, size: int) -> Tensor:
    """Unwritten (B, H, T, size), laid out as (B, T, H, size), because heads are merged or projected next."""
    batch, heads, time, _ = like.shape
    return like.new_empty(batch, time, heads, size).transpose(1, 2)


def _pairs(query: Tensor, key: Tensor, wanted: float) -> Tensor:
    """Zeros (B, H, T, S), in which the kernel writes what is seen; no numbers unless wanted."""
    return query.new_zeros(*query.shape[:3], key.shape[2]) if wanted else query.new_empty(0)


def _view(tensor: Tensor | None) -> tuple[int, ...]:
    return _NO_VIEW if tensor is None or tensor.dim() < 4 else (tensor.data_ptr(), *tensor.stride()[:3])


def _every_pair(bias: Tensor, pairs: tuple[int, ...]) -> Tensor:
    """The bias seen as (B, H, T, S); only a broadcast over the keys is written out."""
    return _rows(bias.expand(*bias.shape[:3], pairs[3])).expand(pairs)


def _run(
    direction: str,
    inputs: tuple[Tensor, ...],
    bias: Tensor | None,
    extras: tuple[Tensor | None, Tensor | None],
    options: _Options,
    *views: list[tuple[int, ...]],
) -> None:
    query, key, value = inputs
    module, kernel = kernel_for(f"softmax_attention_{direction}", query.dtype)
    scale, dropout, causal, _ = options
    if dropout > 0 and extras[1] is None:
        raise ValueError(f"dropout={dropout} needs a seed")
    sizes = (*query.shape[:3], key.shape[2], query.shape[3], value.shape[3])
    every_pair = None if bias is None else _every_pair(bias, sizes[:4])  # a copy, perhaps: alive while the kernel runs
    kept = [None if tensor is None else tensor.contiguous() for tensor in extras]
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in kept]
    call = module.SoftmaxAttentionCall(sizes, bool(causal), scale, dropout, *addresses, _view(every_pair))
    kernel(call, [_view(tensor) for tensor in inputs], *views, torch.get_num_threads())


@torch.library.impl(_FORWARD, "cpu")
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    ends: Tensor | None,
    seed: Tensor | None,
    options: list[float],
) -> tuple[Tensor, Tensor]:
    outputs, weights = _fake_forward(query, key, value, options)
    inputs = (_rows(query), _rows(key), _rows(value))
    _run("forward", inputs, bias, (ends, seed), _Options(*options), [_view(outputs), _view(weights)])
    return outputs, weights


@torch.library.impl(_STORED, "cpu")
def _stored(query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, ends: Tensor | None, scale: float) -> Tensor:
    outputs = _fake_stored(query, keys, values)
    module, kernel = kernel_for("softmax_attention_stored", query.dtype)
    query, keys, values = _rows(query), _rows(keys), _rows(values)
    (batch, heads, _, size), value_size = query.shape, values.shape[2]
    slots = slots.contiguous()
    both_ends = None if ends is None else torch.stack((torch.ones_like(ends), ends))
    sizes = (batch, heads, 1, slots.shape[1], size, value_size)
    address = 0 if both_ends is None else both_ends.data_ptr()
    call = module.SoftmaxAttentionCall(sizes, False, scale, 0.0, address, 0, _NO_VIEW)
    rows = [(tensor.data_ptr(), 0, tensor.stride(1), tensor.stride(0)) for tensor in (keys, values)]
    kernel(call, [_view(query), *rows], _view(outputs), slots.data_ptr(), len(keys), torch.get_num_threads())
    return outputs


@torch.library.impl(_BACKWARD, "cpu")
def _backward(
    cotangent: Tensor,
    weights_cotangent: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    ends: Tensor | None,
    seed: Tensor | None,
    options: list[float],
) -> tuple[Tensor, ...]:
    inputs = (_rows(query), _rows(key), _rows(value))
    cotangent = _rows(cotangent)
    weights_cotangent = None if weights_cotangent is None else _rows(weights_cotangent)
    gradients = _fake_backward(cotangent, weights_cotangent, query, key, value, options)
    views = [_view(cotangent), _view(weights_cotangent)], [_view(tensor) for tensor in gradients]
    _run("backward", inputs, bias, (ends, seed), _Options(*options), *views)
    return gradients


def _fake_forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    wanted = rest[-1][3]
    return _empty(query, value.shape[3]), _pairs(query, key, wanted)


def _fake_stored(query: Tensor, keys: Tensor, values: Tensor, *rest: Any) -> Tensor:
    return _empty(query, values.shape[2])


def _fake_backward(
    cotangent: Tensor, weights_cotangent: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    wanted = rest[-1][3]
    return (*(_empty(tensor, tensor.shape[3]) for tensor in (query, key, value)), _pairs(query, key, wanted))


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:6])
    ctx.options = inputs[6][:3]


def _gradient(ctx: Any, cotangent: Tensor | None, weights_cotangent: Tensor | None) -> tuple[Tensor | None, ...]:
    inputs, of_bias = ctx.saved_tensors, ctx.needs_input_grad[3]
    query, _, value, bias = inputs[:4]
    if cotangent is None:
        cotangent = value.new_zeros(*query.shape[:3], value.shape[3])
    *gradients, pairs = torch.ops.structattn.softmax_attention_backward(
        cotangent, weights_cotangent, *inputs, [*ctx.options, float(of_bias)]
    )
    return (*gradients, pairs.sum_to_size(bias.shape) if of_bias else None, None, None, None)


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError(
        "softmax_attention: the compiled kernel has no second derivative; implementation='reference' has"
    )


torch.library.register_fake(_FORWARD, _fake_forward)
torch.library.register_fake(_STORED, _fake_stored)
torch.library.register_fake(_BACKWARD, _fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_inputs)
torch.library.register_autograd(_BACKWARD, _refuse_second_gradient)
