"""Gaussian attention by a Triton kernel over a band of keys."""

from typing import Any

from torch import Tensor

from structattn.operators.common.gpu import gpu_kernels, launch, power_of_two
from structattn.operators.common.kernels import contiguous_rows
from structattn.operators.common.registration import register
from structattn.operators.gaussian_attention.cpu import BATCHING, empty, empty_gradient, empty_outputs, save_band

_DEVICES = ("cpu", "cuda")


def _product(
    source: Tensor,
    output: Tensor,
    weights: Tensor,
    starts: Tensor,
    lengths: Tensor | None,
    memory_lengths: Tensor | None,
    keys: int,
    transposed: bool,
) -> Tensor:
    source = contiguous_rows(source)
    weights, starts = weights.contiguous(), starts.contiguous()
    ends = [starts if tensor is None else tensor.contiguous() for tensor in (lengths, memory_lengths)]
    tables, heads, rows, taps = weights.shape
    batch, _, time, size = output.shape
    block, width = 32, power_of_two(max(size, 16), 64)
    launch(
        gpu_kernels("gaussian_attention.product_gpu_kernel").band_product,
        (batch * heads, -(-time // block), -(-size // width)),
        (source, weights, starts, *ends, output),
        *(heads, starts.shape[2], keys, size, taps, tables, rows),
        *(*source.stride()[:3], *output.stride()[:3]),
        BLOCK=block,
        WIDTH=width,
        TRANSPOSED=transposed,
        QUERY_ENDS=lengths is not None,
        KEY_ENDS=memory_lengths is not None,
        DOUBLE=source.element_size() == 8,
    )
    return output


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    return gaussian_attention_gpu_backward(cotangent, *ctx.saved_tensors, ctx.keys), None, None, None, None


def _second_gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    return gaussian_attention_gpu(cotangent, *ctx.saved_tensors), None, None, None, None, None


@register(
    "gaussian_attention_gpu",
    devices=_DEVICES,
    fake=empty_outputs,
    gradient=_gradient,
    save=save_band,
    batching=BATCHING,
)
def gaussian_attention_gpu(
    values: Tensor, weights: Tensor, starts: Tensor, lengths: Tensor | None, memory_lengths: Tensor | None
) -> Tensor:
    """sum_k w_ik v_{s_i + k}, (B, H, T, d); arguments as for ``gaussian_attention_cpu``."""
    output = empty_outputs(values, weights, starts)
    return _product(values, output, weights, starts, lengths, memory_lengths, values.shape[2], False)


@register(
    "gaussian_attention_gpu_backward",
    devices=_DEVICES,
    fake=empty_gradient,
    gradient=_second_gradient,
    save=save_band,
    batching=BATCHING,
)
def gaussian_attention_gpu_backward(
    cotangent: Tensor,
    weights: Tensor,
    starts: Tensor,
    lengths: Tensor | None,
    memory_lengths: Tensor | None,
    keys: int,
) -> Tensor:
    """Gradient of the values (B, H, S, d)."""
    return _product(cotangent, empty(cotangent, keys), weights, starts, lengths, memory_lengths, keys, True)
