"""The compiled banded product as a torch operator; it is linear, and each direction is the gradient of the other."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import kernel_for

_View = tuple[int, ...]
_FORWARD = "structattn::gaussian_attention"
_BACKWARD = "structattn::gaussian_attention_backward"
_STORED = "structattn::gaussian_attention_stored"
_BAND = "Tensor weights, Tensor starts, Tensor? lengths, Tensor? memory_lengths"
# Defined by schema, not by the custom_op decorator, which would take longer than a small kernel.
torch.library.define(_FORWARD, f"(Tensor values, {_BAND}) -> Tensor")
torch.library.define(_BACKWARD, f"(Tensor cotangent, {_BAND}, SymInt keys) -> Tensor")
torch.library.define(_STORED, f"(Tensor values, Tensor slots, {_BAND}) -> Tensor")


def gaussian_attention_op(
    values: Tensor, weights: Tensor, starts: Tensor, lengths: Tensor | None, memory_lengths: Tensor | None
) -> Tensor:
    """sum_k w_ik v_{s_i + k}, (B, H, T, d), by the compiled kernel.

    Args:
        values: (B, H, S, d), float32 or float64, on a CPU.
        weights: w, (B, H, T, K) in the same dtype, where B may be 1, and T as well if all queries have the same; of a
            row only the ends may be zero. They get no gradient.
        starts: s, (B, H, T) with the same B, int64; keys outside of 0 to S - 1 are left out.
        lengths: of the queries, (B,) int64, or None.
        memory_lengths: of the keys, (B,) int64, or None.
    """
    outputs: Tensor = torch.ops.structattn.gaussian_attention(values, weights, starts, lengths, memory_lengths)
    return outputs


def gaussian_attention_stored_op(
    values: Tensor, slots: Tensor, weights: Tensor, starts: Tensor, memory_lengths: Tensor | None
) -> Tensor:
    """sum_k w_k v_{slots[s + k]}, (B, H, 1, d), without gradients.

    Args:
        values: (N, H, d), float32 or float64, on a CPU.
        slots: (B, S) int64, the rows that are each sequence's values.
        weights: as for ``gaussian_attention_op``, for one query.
        starts: likewise.
        memory_lengths: how many slots count, (B,) int64, or None.

    Raises:
        IndexError: a slot is not one of 0 to N - 1.
    """
    outputs: Tensor = torch.ops.structattn.gaussian_attention_stored(
        values, slots, weights, starts, None, memory_lengths
    )
    return outputs


def _rows(tensor: Tensor) -> Tensor:
    """The tensor itself where its last axis is contiguous, which is all that the kernel asks for."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _empty(like: Tensor, time: int) -> Tensor:
    """Unwritten (B, H, time, d), laid out as (B, time, H, d) where ``like`` is, otherwise contiguous."""
    batch, heads, _, size = like.shape
    if like.stride(1) < like.stride(2):
        return like.new_empty(batch, time, heads, size).transpose(1, 2)
    return like.new_empty(batch, heads, time, size)


def _run(direction: str, keys: int, outputs: Tensor, given: Tensor, views: list[_View], table: Any, *rest: int) -> None:
    """Run it for all of the batch of ``outputs``, (B, H, time, d); ``given`` is what it reads."""
    module, kernel = kernel_for(f"gaussian_attention_{direction}", given.dtype)
    weights, starts, *ends = (None if tensor is None else tensor.contiguous() for tensor in table)
    if weights is None or starts is None or weights.dtype != given.dtype:
        raise RuntimeError("gaussian attention kernel: expected starts, and weights in the dtype of the values")
    tables, heads, rows, taps = weights.shape
    sizes = (outputs.shape[0], heads, starts.shape[2], keys, outputs.shape[3], taps, tables, rows)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in (weights, starts, *ends)]
    call = module.GaussianAttentionCall(sizes, addresses)
    kernel(call, *views, *rest, torch.get_num_threads())


def _view(tensor: Tensor) -> _View:
    return (tensor.data_ptr(), *tensor.stride()[:3])


@torch.library.impl(_FORWARD, "cpu")
def _forward(values: Tensor, *table: Any) -> Tensor:
    values = _rows(values)
    outputs = _fake_forward(values, *table)
    _run("forward", values.shape[2], outputs, values, [_view(values), _view(outputs)], table)
    return outputs


@torch.library.impl(_STORED, "cpu")
def _stored(values: Tensor, slots: Tensor, *table: Any) -> Tensor:
    values, slots = _rows(values), slots.contiguous()
    outputs = _fake_stored(values, slots)
    views = [(values.data_ptr(), 0, values.stride(1), values.stride(0)), _view(outputs)]
    _run("stored", slots.shape[1], outputs, values, views, table, slots.data_ptr(), len(values))
    return outputs


@torch.library.impl(_BACKWARD, "cpu")
def _backward(cotangent: Tensor, *rest: Any) -> Tensor:
    cotangent = _rows(cotangent)
    gradient = _fake_backward(cotangent, *rest)
    _run("backward", rest[-1], gradient, cotangent, [_view(cotangent), _view(gradient)], rest[:-1])
    return gradient


def _fake_forward(values: Tensor, weights: Tensor, starts: Tensor, *_: Any) -> Tensor:
    return _empty(values, starts.shape[2])


def _fake_stored(values: Tensor, slots: Tensor, *_: Any) -> Tensor:
    return values.new_empty(len(slots), 1, *values.shape[1:]).transpose(1, 2)


def _fake_backward(cotangent: Tensor, *rest: Any) -> Tensor:
    return _empty(cotangent, rest[-1])


def _save_table(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:5])
    ctx.keys = inputs[0].shape[2]


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    gradient = torch.ops.structattn.gaussian_attention_backward(cotangent, *ctx.saved_tensors, ctx.keys)
    return gradient, None, None, None, None


def _second_gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.structattn.gaussian_attention(cotangent, *ctx.saved_tensors), None, None, None, None, None


torch.library.register_fake(_FORWARD, _fake_forward)
torch.library.register_fake(_STORED, _fake_stored)
torch.library.register_fake(_BACKWARD, _fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_table)
torch.library.register_autograd(_BACKWARD, _second_gradient, setup_context=_save_table)
