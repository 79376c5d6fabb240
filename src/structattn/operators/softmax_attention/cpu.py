"""Softmax attention on a CPU: by the compiled kernel, and for long sequences by torch's fused one."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.kernels import contiguous_rows, kernel_for, kernel_module, strided_view
from structattn.operators.common.registration import Batching, refuse_double_backward, register
from structattn.operators.softmax_attention.reference import Visibility, softmax_attention_reference

_BATCHING = Batching(second=("ends",), broadcast=("bias",), by_position=("seed",))


class Options(NamedTuple):
    """Scale, dropout rate, and two flags as numbers: causal; whether the weights or the bias's gradient are wanted.

    One argument of the operators for all of them: torch's cost of a call grows with the square of the number of
    arguments.
    """

    scale: float
    dropout: float
    causal: float
    wanted: float


def _empty(like: Tensor, size: int) -> Tensor:
    """Allocate (B, H, T, size), laid out as (B, T, H, size), because heads are merged or projected next."""
    batch, heads, time, _ = like.shape
    return like.new_empty(batch, time, heads, size).transpose(1, 2)


def _expanded_bias(bias: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Expand the bias to (B, H, T, S); only a broadcast over the keys is copied."""
    return contiguous_rows(bias.expand(*bias.shape[:3], shape[3])).expand(shape)


def _run(
    direction: str,
    inputs: tuple[Tensor, ...],
    bias: Tensor | None,
    extras: tuple[Tensor | None, Tensor | None],
    options: Options,
    *views: list[tuple[int, ...]],
) -> None:
    query, key, value = inputs
    scale, dropout, causal, _ = options
    if dropout > 0 and extras[1] is None:
        raise ValueError(f"dropout={dropout} needs a seed")
    sizes = (*query.shape[:3], key.shape[2], query.shape[3], value.shape[3])
    expanded = None if bias is None else _expanded_bias(bias, sizes[:4])  # may be a copy: alive while the kernel runs
    kept = [None if tensor is None else tensor.contiguous() for tensor in extras]
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in kept]
    call = kernel_module().SoftmaxAttentionCall(sizes, bool(causal), scale, dropout, *addresses, strided_view(expanded))
    kernel = kernel_for(f"softmax_attention_{direction}", query.dtype)
    kernel(call, [strided_view(tensor) for tensor in inputs], *views, torch.get_num_threads())


def _torch_is_faster(
    inputs: tuple[Tensor, ...], bias: Tensor | None, ends: Tensor | None, options: Options, *cotangents: Tensor | None
) -> bool:
    """Whether torch's fused kernel is faster (benchmarks/softmax.py) and follows the conventions of the operator.

    It is faster without dropout, for long sequences and heads that are not small. It computes 0 * NaN = NaN, so that
    non-finite values would propagate to positions from which they are masked.
    """
    query, key, value = inputs
    size, least = query.shape[3], 1024 if options.causal else 512
    plain = bias is None and ends is None and options.dropout == 0 and not options.wanted
    long = min(query.shape[2], key.shape[2]) >= least and size == value.shape[3] and size >= 32
    return (
        plain
        and long
        and query.numel() > 0  # else torch's backward pass divides by zero, which ends the process
        and query.dtype == torch.float32
        and _are_finite(*inputs, *(tensor for tensor in cotangents if tensor is not None))
    )


def _are_finite(*tensors: Tensor) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


def _torch_backward(cotangent: Tensor, inputs: tuple[Tensor, ...], options: Options) -> tuple[Tensor, ...]:
    """Gradients of query, key and value by torch's fused kernel, after its forward pass, of which nothing is saved."""
    keywords = {"is_causal": bool(options.causal), "scale": options.scale, "dropout_p": 0.0}
    outputs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*inputs, **keywords)
    gradients: tuple[Tensor, ...] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        cotangent, *inputs, *outputs, **keywords
    )
    return gradients


def _empty_gradients(
    cotangent: Tensor, weights_cotangent: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_query, grad_key, grad_value = (_empty(tensor, tensor.shape[3]) for tensor in (query, key, value))
    wanted = Options(*rest[-1]).wanted  # of the scores, of which the kernel writes the visible pairs
    pairs = query.new_zeros(*query.shape[:3], key.shape[2]) if wanted else query.new_empty(query.shape[0], 0)
    return grad_query, grad_key, grad_value, pairs


@register(
    "softmax_attention_backward",
    fake=_empty_gradients,
    gradient=refuse_double_backward("softmax_attention", "CPU"),
    batching=_BATCHING,
)
def softmax_attention_backward(
    cotangent: Tensor,
    weights_cotangent: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    ends: Tensor | None,
    seed: Tensor | None,
    options: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, and of the scores (B, H, T, S) if wanted."""
    inputs = (contiguous_rows(query), contiguous_rows(key), contiguous_rows(value))
    cotangent = contiguous_rows(cotangent)
    weights_cotangent = None if weights_cotangent is None else contiguous_rows(weights_cotangent)
    gradients = _empty_gradients(cotangent, weights_cotangent, query, key, value, options)
    if _torch_is_faster(inputs, bias, ends, Options(*options), cotangent, weights_cotangent):
        results_of_torch = _torch_backward(cotangent, inputs, Options(*options))
        if _are_finite(*results_of_torch):  # else the products of a masked pair may have overflowed
            for gradient, result in zip(gradients[:3], results_of_torch, strict=True):
                gradient.copy_(result)
            return gradients
    cotangents = [strided_view(cotangent), strided_view(weights_cotangent)]
    results = [strided_view(tensor) for tensor in gradients]
    _run("backward", inputs, bias, (ends, seed), Options(*options), cotangents, results)
    return gradients


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:6])
    ctx.options = inputs[6][:3]


def _gradient(ctx: Any, cotangent: Tensor | None, weights_cotangent: Tensor | None) -> tuple[Tensor | None, ...]:
    query, key, value, bias, ends, seed = ctx.saved_tensors
    bias_wanted = ctx.needs_input_grad[3]
    if cotangent is None:
        cotangent = value.new_zeros(*query.shape[:3], value.shape[3])
    *gradients, pairs = softmax_attention_backward(
        cotangent, weights_cotangent, query, key, value, bias, ends, seed, [*ctx.options, float(bias_wanted)]
    )
    return (*gradients, pairs.sum_to_size(bias.shape) if bias_wanted else None, None, None, None)


def _by_definition(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    ends: Tensor | None,
    seed: Tensor | None,
    options: list[float],
) -> tuple[Tensor, Tensor]:
    scale, dropout, causal, _ = options
    if dropout > 0:
        raise NotImplementedError(
            "softmax_attention: forward-mode derivatives (jvp) with dropout are not supported by the CPU kernel; use "
            "implementation='reference'"
        )
    lengths, memory_lengths = (None, None) if ends is None else ends.unbind()
    visible = Visibility(lengths, memory_lengths, bool(causal), bias)
    return softmax_attention_reference([query, key, value], visible, scale, 0.0)


def _empty_outputs(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    wanted = Options(*rest[-1]).wanted  # weights, of which the kernel writes the visible pairs
    pairs = query.new_zeros(*query.shape[:3], key.shape[2]) if wanted else query.new_empty(query.shape[0], 0)
    return _empty(query, value.shape[3]), pairs


@register(
    "softmax_attention",
    fake=_empty_outputs,
    gradient=_gradient,
    save=_save,
    definition=_by_definition,
    batching=_BATCHING,
)
def softmax_attention_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    ends: Tensor | None,
    seed: Tensor | None,
    options: list[float],
) -> tuple[Tensor, Tensor]:
    """Outputs (B, H, T, E) and weights (B, H, T, S), the latter empty unless wanted.

    Args:
        query: float32 or float64, checked, as key and value are.
        key: (B, H, S, D).
        value: (B, H, S, E).
        bias: of the same dtype, with four axes, which broadcast to (B, H, T, S).
        ends: (2, B) int64, the lengths of queries and of keys.
        seed: (1,) int64, which decides which weights are dropped; required if the dropout rate is above 0.
        options: see ``Options``.
    """
    outputs, weights = _empty_outputs(query, key, value, options)
    inputs = (contiguous_rows(query), contiguous_rows(key), contiguous_rows(value))
    if _torch_is_faster(inputs, bias, ends, Options(*options)):
        outputs.copy_(F.scaled_dot_product_attention(*inputs, is_causal=bool(options[2]), scale=options[0]))
        return outputs, weights
    _run("forward", inputs, bias, (ends, seed), Options(*options), [strided_view(outputs), strided_view(weights)])
    return outputs, weights


def _empty_indexed(query: Tensor, keys: Tensor, values: Tensor, *rest: Any) -> Tensor:
    batch, heads, _, _ = query.shape
    return query.new_empty(batch, 1, heads, values.shape[2]).transpose(1, 2)


@register("softmax_attention_indexed", fake=_empty_indexed, batching=Batching(shared=("keys", "values")))
def softmax_attention_indexed(
    query: Tensor, keys: Tensor, values: Tensor, row_indices: Tensor, ends: Tensor | None, scale: float
) -> Tensor:
    """``softmax_attention`` of one query per sequence; key s of sequence b is row ``row_indices[b, s]`` of ``keys``.

    Rows are not copied, and a row that many sequences share comes from memory once. Outputs are (B, H, 1, E), not
    differentiable. Cost: O(B * H * S * (D + E)) time.

    Args:
        query: (B, H, 1, D), checked, as all arguments; ``can_index_rows`` is true of it and of keys and values.
        keys: (N, H, D).
        values: (N, H, E).
        row_indices: (B, S) int64, the rows that are each sequence's keys and values.
        ends: (B,) int64, the number of rows that count; all where None.
        scale: factor of the scores.

    Raises:
        IndexError: a row index is not one of 0 to N - 1.
    """
    outputs = _empty_indexed(query, keys, values)
    query, keys, values = contiguous_rows(query), contiguous_rows(keys), contiguous_rows(values)
    (batch, heads, _, size), value_size = query.shape, values.shape[2]
    row_indices = row_indices.contiguous()
    both_ends = None if ends is None else torch.stack((torch.ones_like(ends), ends))
    sizes = (batch, heads, 1, row_indices.shape[1], size, value_size)
    address = 0 if both_ends is None else both_ends.data_ptr()
    call = kernel_module().SoftmaxAttentionCall(sizes, False, scale, 0.0, address, 0, strided_view(None))
    rows = [(tensor.data_ptr(), 0, tensor.stride(1), tensor.stride(0)) for tensor in (keys, values)]
    kernel = kernel_for("softmax_attention_stored", query.dtype)
    views = [strided_view(query), *rows], strided_view(outputs)
    kernel(call, *views, row_indices.data_ptr(), len(keys), torch.get_num_threads())
    return outputs
