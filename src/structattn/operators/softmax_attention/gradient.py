"""The compiled softmax attention as a torch operator with its gradient."""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import compiled_kernels

_FORWARD = "structattn::softmax_attention"
_BACKWARD = "structattn::softmax_attention_backward"
_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor? lengths, Tensor? seed"
_OPTIONS = "bool causal, float scale, float dropout"
# Defined by schema, not by the custom_op decorator, which would take longer than a small kernel.
torch.library.define(_FORWARD, f"({_INPUTS}, {_OPTIONS}) -> Tensor")
torch.library.define(_BACKWARD, f"(Tensor cotangent, {_INPUTS}, {_OPTIONS}) -> (Tensor, Tensor, Tensor)")

Options = tuple[bool, float, float]


def softmax_attention_op(
    inputs: list[Tensor], lengths: Tensor | None, seed: Tensor | None, causal: bool, scale: float, dropout: float
) -> Tensor:
    """Outputs (B, H, T, E) by the compiled kernel; query, key, value in float32 or float64 on a CPU, checked.

    ``seed`` (1,) int64 decides which weights are dropped; it must be given where ``dropout`` > 0.
    """
    outputs: Tensor = torch.ops.structattn.softmax_attention(*inputs, lengths, seed, causal, scale, dropout)
    return outputs


def _rows(tensor: Tensor) -> Tensor:
    """The tensor itself where its last axis is contiguous, which is all that the kernel asks for."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _empty(like: Tensor, size: int) -> Tensor:
    """Unwritten (B, H, T, size), laid out as (B, T, H, size), because heads are merged or projected next."""
    batch, heads, time, _ = like.shape
    return like.new_empty(batch, time, heads, size).transpose(1, 2)


def _view(tensor: Tensor) -> tuple[int, ...]:
    return (tensor.data_ptr(), *tensor.stride()[:3])


def _run(
    direction: str,
    inputs: tuple[Tensor, ...],
    extras: tuple[Tensor | None, Tensor | None],
    options: Options,
    *views: object,
) -> None:
    query, _, value = inputs
    extension = compiled_kernels()
    if extension is None or query.dtype not in (torch.float32, torch.float64):
        raise RuntimeError(
            f"softmax attention kernel: got {query.dtype}; expected float32 or float64, and the extension"
        )
    if options[2] > 0 and extras[1] is None:
        raise ValueError(f"dropout={options[2]} needs a seed")
    kernel = getattr(extension[1], f"softmax_attention_{direction}_{str(query.dtype).removeprefix('torch.')}")
    sizes = (*query.shape[:3], *value.shape[2:3], query.shape[3], value.shape[3])
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in extras]
    call = extension[1].SoftmaxAttentionCall(sizes, *options, *addresses)
    kernel(call, [_view(tensor) for tensor in inputs], *views, torch.get_num_threads())


@torch.library.impl(_FORWARD, "cpu")
def _forward(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None, seed: Tensor | None, *options: Any
) -> Tensor:
    inputs = (_rows(query), _rows(key), _rows(value))
    lengths = None if lengths is None else lengths.contiguous()
    outputs = _empty(query, value.shape[3])
    _run("forward", inputs, (lengths, seed), options, _view(outputs))
    return outputs


@torch.library.impl(_BACKWARD, "cpu")
def _backward(
    cotangent: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    seed: Tensor | None,
    *options: Any,
) -> tuple[Tensor, ...]:
    cotangent, inputs = _rows(cotangent), (_rows(query), _rows(key), _rows(value))
    lengths = None if lengths is None else lengths.contiguous()
    gradients = tuple(_empty(tensor, tensor.shape[3]) for tensor in inputs)
    _run("backward", inputs, (lengths, seed), options, _view(cotangent), [_view(tensor) for tensor in gradients])
    return gradients


def _fake_forward(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    return _empty(query, value.shape[3])


def _fake_backward(cotangent: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return tuple(_empty(tensor, tensor.shape[3]) for tensor in (query, key, value))


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.options = inputs[5:]


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    inputs = ctx.saved_tensors
    gradients = torch.ops.structattn.softmax_attention_backward(cotangent, *inputs, *ctx.options)
    return (*gradients, None, None, None, None, None)


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError(
        "softmax_attention: the compiled kernel has no second derivative; implementation='reference' has"
    )


torch.library.register_fake(_FORWARD, _fake_forward)
torch.library.register_fake(_BACKWARD, _fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save_inputs)
torch.library.register_autograd(_BACKWARD, _refuse_second_gradient)
