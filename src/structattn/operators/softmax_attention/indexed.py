"""Softmax attention of one query per sequence to rows of a shared key/value cache."""

import math

from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, require_alike, require_row_indices, require_shape
from structattn.operators.common.kernels import can_index_rows
from structattn.operators.softmax_attention.cpu import softmax_attention_indexed_cpu


def softmax_attention_indexed(
    query: Float[Tensor, "batch heads 1 size"],
    keys: Float[Tensor, "rows heads size"],
    values: Float[Tensor, "rows heads value"],
    row_indices: Int[Tensor, "batch source"],
    *,
    memory_lengths: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch heads 1 value"]:
    """``softmax_attention`` of one query per sequence; key s of sequence b is row ``row_indices[b, s]`` of ``keys``.

    Rows are not copied, and a row that many sequences share comes from memory once. Not differentiable.
    Cost: O(B * H * S * (D + E)) time.

    Args:
        query: (B, H, 1, D).
        keys: (N, H, D).
        values: (N, H, E).
        row_indices: (B, S), from 0 to N - 1.
        memory_lengths: the number of rows of each sequence that count; all where None.

    Returns:
        The outputs (B, H, 1, E).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.
        IndexError: a row index is not one of 0 to N - 1.
        RuntimeError: ``can_index_rows`` is false.
    """
    require_shape("query", query, (None, None, 1, None), "(B, H, 1, D)")
    batch, heads, _, size = query.shape
    require_shape("keys", keys, (None, heads, size), "(N, H, D)")
    require_shape("values", values, (len(keys), heads, None), "(N, H, E)")
    require_row_indices(row_indices, batch)
    require_alike(query=query, keys=keys, values=values)
    if not can_index_rows(query, keys, values):
        raise RuntimeError("softmax_attention_indexed needs the compiled CPU kernel, and has no gradient")
    ends = (
        None if memory_lengths is None else checked_lengths(memory_lengths, batch, row_indices.shape[1], query.device)
    )
    return softmax_attention_indexed_cpu(query, keys, values, row_indices, ends, 1 / math.sqrt(max(size, 1)))
