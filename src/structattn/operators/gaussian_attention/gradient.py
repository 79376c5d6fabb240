"""The compiled banded product as a torch operator; it is linear, and each direction is the gradient of the other."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import compiled_kernels

_FORWARD = "structattn::gaussian_attention"
_BACKWARD = "structattn::gaussian_attention_backward"
_BAND = "Tensor weights, Tensor starts, Tensor? lengths, Tensor? memory_lengths"
# Defined by schema, not by the custom_op decorator, which would take longer than a small kernel.
torch.library.define(_FORWARD, f"(Tensor values, {_BAND}) -> Tensor")
torch.library.define(_BACKWARD, f"(Tensor cotangent, {_BAND}, SymInt keys) -> Tensor")


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


def _rows(tensor: Tensor) -> Tensor:
    """The tensor itself where its last axis is contiguous, which is all that the kernel asks for."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _empty(like: Tensor, time: int) -> Tensor:
    """Unwritten (B, H, time, d), laid out as (B, time, H, d) where ``like`` is, otherwise contiguous."""
    batch, heads, _, size = like.shape
    if like.stride(1) < like.stride(2):
        return like.new_empty(batch, time, heads, size).transpose(1, 2)
    return like.new_empty(batch, heads, time, size)


def _run(direction: str, keys: int, given: Tensor, made: Tensor, table: tuple[Tensor | None, ...]) -> None:
    extension = compiled_kernels()
    if extension is None or given.dtype not in (torch.float32, torch.float64):
        raise RuntimeError(
            f"gaussian attention kernel: got {given.dtype}; expected float32 or float64, and the extension"
        )
    weights, starts, *ends = (None if tensor is None else tensor.contiguous() for tensor in table)
    if weights is None or starts is None or weights.dtype != given.dtype:
        raise RuntimeError("gaussian attention kernel: expected starts, and weights in the dtype of the values")
    tables, heads, rows, taps = weights.shape
    sizes = (given.shape[0], heads, starts.shape[2], keys, given.shape[3], taps, tables, rows)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in (weights, starts, *ends)]
    call = extension[1].GaussianAttentionCall(sizes, addresses)
    views = [(tensor.data_ptr(), *tensor.stride()[:3]) for tensor in (given, made)]
    kernel = getattr(extension[1], f"gaussian_attention_{direction}_{str(given.dtype).removeprefix('torch.')}")
    kernel(call, *views, torch.get_num_threads())


@torch.library.impl(_FORWARD, "cpu")
def _forward(values: Tensor, *table: Any) -> Tensor:
    values = _rows(values)
    outputs = _fake_forward(values, *table)
    _run("forward", values.shape[2], values, outputs, table)
    return outputs


@torch.library.impl(_BACKWARD, "cpu")
def _backward(cotangent: Tensor, *rest: Any) -> Tensor:
    cotangent = _rows(cotangent)
    gradient = _fake_backward(cotangent, *rest)
    _run("backward", rest[-1], cotangent, gradient, rest[:-1])
    return gradient


def _fake_forward(values: Tensor, weights: Tensor, starts: Tensor, *_: Any) -> Tensor:
    return _empty(values, starts.shape[2])


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
torch.library.register_fake(_BACKWARD, _fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_table)
torch.library.register_autograd(_BACKWARD, _second_gradient, setup_context=_save_table)
