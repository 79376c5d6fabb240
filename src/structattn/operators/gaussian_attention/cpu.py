"""Gaussian attention by compiled kernels over a band of keys, for sequences and for rows of a cache."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.checks import integer_lengths, require_row_indices, require_shape
from structattn.operators.common.kernels import can_index_rows, contiguous_rows, kernel_for, kernel_module, strided_view
from structattn.operators.common.registration import Batching, register
from structattn.operators.gaussian_attention.reference import Gaussians, Rows, weights_of
from structattn.support.shapes import Float, Int, Lengths

Band = tuple[Float[Tensor, "#batch heads #queries taps"], Int[Tensor, "#batch heads queries"]]


def band(heads: Gaussians, rows: Rows) -> Band:
    """Return the weights of each query's band and the index of its first key; all other weights are zero.

    A band is centred at round(f(i)) and 2 * radius + 1 keys wide. If all queries have the same weights,
    there is one row.
    """
    same = heads.ratio == 1 and not heads.normalize
    return _band_of_all(heads, rows) if same else _bands(heads, rows)


def _band_of_all(heads: Gaussians, rows: Rows) -> Band:
    """Return one row for all queries, that of query 0; the kernel skips keys outside of the sequence.

    From one query to the next the band moves by one key. Computed on the CPU: on a GPU so few numbers would take longer
    to start some 30 operations than to move. Cost: O(H * K + T).
    """
    host = torch.device("cpu")
    radius = heads.radius(rows.dtype)
    distances = max(0, rows.queries + rows.keys - 1)  # as many as there are between all queries and all keys
    relative = rows.first - rows.first_key + torch.arange(rows.queries, device=rows.device)
    if torch.compiler.is_exporting() or 2 * radius + 1 <= distances:  # a program that is exported serves any length
        count, start = 2 * radius + 1, torch.floor(heads.centres(0, 1, host)[1] + 0.5).long() - radius
    else:
        earliest = rows.first_key - (rows.first + rows.queries - 1)
        count, start = distances, torch.full((len(heads.offsets), 1), earliest, device=host)
    everywhere = dataclasses.replace(rows, queries=1, keys=2**40, first=0, first_key=0, ends=None, device=host)
    weights = weights_of(heads, everywhere, start[None], count)
    return weights.to(rows.device), start[None].to(rows.device) + relative


def _bands(heads: Gaussians, rows: Rows) -> Band:
    """Return a row for each query, with bands shifted into the sequence, so that they contain the nearest keys.

    The ends of sequences matter to normalised weights only: otherwise one table serves all. Cost: O(B * H * T * K),
    with B = 1 where one table serves.
    """
    if not heads.normalize:
        rows = dataclasses.replace(rows, ends=None)
    radius = heads.radius(rows.dtype)
    count = torch.sym_min(2 * radius + 1, rows.keys)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    whole, rest = heads.centres(rows.first, rows.queries, rows.device)
    wanted = whole + torch.floor(rest + 0.5).long() - radius - rows.first_key
    starts = torch.minimum(wanted, rows.ends_seen(heads.causal) - count).clamp(min=0)
    return weights_of(heads, rows, starts, count), starts


_BAND = ("weights", "starts")
BATCHING = Batching(broadcast=_BAND)


def empty(like: Tensor, time: int) -> Tensor:
    """Allocate (B, H, time, d), laid out as (B, time, H, d) where ``like`` is, otherwise contiguous."""
    batch, heads, _, size = like.shape
    if like.stride(1) < like.stride(2):
        return like.new_empty(batch, time, heads, size).transpose(1, 2)
    return like.new_empty(batch, heads, time, size)


def _run(
    direction: str,
    keys: int,
    source: Tensor,
    outputs: Tensor,
    views: list[tuple[int, ...]],
    band: tuple[Tensor | None, ...],
    *rest: int,
) -> None:
    """Run a kernel from ``source`` to ``outputs``, (B, H, time, d), for a band of weights, starts and lengths."""
    weights, starts, *ends = (None if tensor is None else tensor.contiguous() for tensor in band)
    if weights is None or starts is None or weights.dtype != source.dtype:
        raise RuntimeError("gaussian attention kernel: expected starts, and weights in the dtype of the values")
    tables, heads, rows, taps = weights.shape
    sizes = (outputs.shape[0], heads, starts.shape[2], keys, outputs.shape[3], taps, tables, rows)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in (weights, starts, *ends)]
    call = kernel_module().GaussianAttentionCall(sizes, addresses)
    kernel = kernel_for(f"gaussian_attention_{direction}", source.dtype)
    kernel(call, *views, *rest, torch.get_num_threads())


def empty_outputs(values: Tensor, weights: Tensor, starts: Tensor, *_: Any) -> Tensor:
    """Allocate the result of the product."""
    return empty(values, starts.shape[2])


def empty_gradient(cotangent: Tensor, *rest: Any) -> Tensor:
    """Allocate the result of its transpose."""
    return empty(cotangent, rest[-1])


def save_band(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Save what either needs for its gradient, and the number of keys or queries."""
    ctx.save_for_backward(*inputs[1:5])
    ctx.keys = inputs[0].shape[2]


def _gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    return gaussian_attention_backward(cotangent, *ctx.saved_tensors, ctx.keys), None, None, None, None


def _second_gradient(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    return gaussian_attention_cpu(cotangent, *ctx.saved_tensors), None, None, None, None, None


@register("gaussian_attention", fake=empty_outputs, gradient=_gradient, save=save_band, batching=BATCHING)
def gaussian_attention_cpu(
    values: Tensor, weights: Tensor, starts: Tensor, lengths: Tensor | None, memory_lengths: Tensor | None
) -> Tensor:
    """sum_k w_ik v_{s_i + k}, (B, H, T, d).

    Args:
        values: (B, H, S, d), float32 or float64.
        weights: w, (B, H, T, K) in the same dtype, where B may be 1, and T as well if all queries have the same; only
            the ends of a row may be zero. Not differentiable.
        starts: s, (B, H, T) with the same B, int64; keys outside of 0 to S - 1 are left out.
        lengths: of the queries, (B,) int64, or None.
        memory_lengths: of the keys, (B,) int64, or None.
    """
    values = contiguous_rows(values)
    outputs = empty_outputs(values, weights, starts)
    views = [strided_view(values), strided_view(outputs)]
    _run("forward", values.shape[2], values, outputs, views, (weights, starts, lengths, memory_lengths))
    return outputs


@register(
    "gaussian_attention_backward", fake=empty_gradient, gradient=_second_gradient, save=save_band, batching=BATCHING
)
def gaussian_attention_backward(
    cotangent: Tensor,
    weights: Tensor,
    starts: Tensor,
    lengths: Tensor | None,
    memory_lengths: Tensor | None,
    keys: int,
) -> Tensor:
    """Gradient of the values (B, H, S, d)."""
    cotangent = contiguous_rows(cotangent)
    gradient = empty(cotangent, keys)
    views = [strided_view(cotangent), strided_view(gradient)]
    _run("backward", keys, cotangent, gradient, views, (weights, starts, lengths, memory_lengths))
    return gradient


def _empty_indexed(values: Tensor, row_indices: Tensor, *_: Any) -> Tensor:
    return values.new_empty(len(row_indices), 1, *values.shape[1:]).transpose(1, 2)


@register("gaussian_attention_indexed", fake=_empty_indexed, batching=Batching(broadcast=_BAND, shared=("values",)))
def gaussian_attention_indexed_cpu(
    values: Tensor, row_indices: Tensor, weights: Tensor, starts: Tensor, memory_lengths: Tensor | None
) -> Tensor:
    """sum_k w_k v_{row_indices[s + k]}, (B, H, 1, d), not differentiable.

    Args:
        values: (N, H, d), float32 or float64.
        row_indices: (B, S) int64, the rows that are each sequence's values.
        weights: as for ``gaussian_attention_cpu``, for one query.
        starts: likewise.
        memory_lengths: the number of rows that count, (B,) int64, or None.

    Raises:
        IndexError: a row index is not one of 0 to N - 1.
    """
    values, row_indices = contiguous_rows(values), row_indices.contiguous()
    outputs = _empty_indexed(values, row_indices)
    views = [(values.data_ptr(), 0, values.stride(1), values.stride(0)), strided_view(outputs)]
    band = (weights, starts, None, memory_lengths)
    _run("stored", row_indices.shape[1], values, outputs, views, band, row_indices.data_ptr(), len(values))
    return outputs


def gaussian_attention_indexed(
    values: Float[Tensor, "rows heads size"],
    row_indices: Int[Tensor, "batch source"],
    heads: Gaussians,
    *,
    first: int,
    memory_lengths: Lengths = None,
) -> Float[Tensor, "batch heads 1 size"]:
    """``gaussian_attention`` of one query per sequence; value s of sequence b is row ``row_indices[b, s]``.

    Rows are not copied. Not differentiable. Cost: O(B * H * K * d) time, K the number of keys with nonzero weight.

    Args:
        values: (N, H, d).
        row_indices: (B, S), from 0 to N - 1.
        heads: the other arguments of ``gaussian_attention``.
        first: the position of the query, where the first row has position 0.
        memory_lengths: the number of valid rows of each sequence; None: all.

    Returns:
        The readings (B, H, 1, d).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.
        IndexError: a row index is not one of 0 to N - 1.
        RuntimeError: ``can_index_rows`` is false.
    """
    require_shape("values", values, (None, len(heads.offsets), None), "(N, H, d) with one head for each offset")
    require_row_indices(row_indices)
    if not can_index_rows(values):
        raise RuntimeError("gaussian_attention_indexed needs the compiled CPU kernel, and has no gradient")
    batch, keys = row_indices.shape
    ends = integer_lengths(memory_lengths, batch, values.device, "memory_lengths")
    rows = Rows(1, keys, first, 0, ends, values.dtype, values.device)
    return gaussian_attention_indexed_cpu(values, row_indices, *band(heads, rows), ends)
