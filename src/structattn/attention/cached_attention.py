"""Attention of one query per member to cached rows, indexed in place if a kernel can, otherwise from copies."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from structattn.attention.cross_attention_cache import CrossAttentionCache
from structattn.attention.key_value_cache import KeyValueCache
from structattn.attention.positions.protocol import ScorePositions, apply_positions
from structattn.operators import gaussian_attention, softmax_attention
from structattn.operators.common.kernels import can_index_rows
from structattn.operators.gaussian_attention import Gaussians
from structattn.operators.gaussian_attention.indexed import gaussian_attention_indexed
from structattn.operators.softmax_attention.indexed import softmax_attention_indexed

Cache = KeyValueCache | CrossAttentionCache


def cached_softmax_attention(
    query: Float[Tensor, "batch heads 1 size"],
    cache: Cache,
    dropout: float = 0.0,
    positions: ScorePositions | None = None,
) -> Float[Tensor, "batch heads 1 size"]:
    """Return softmax attention of one query to the cached positions.

    Args:
        query: of each member.
        cache: its first two tensors are keys and values.
        dropout: rate at which weights are dropped.
        positions: acts on the scores; the query then has the position of the last key.
    """
    keys, values = cache.rows[:2]
    if positions is None and dropout == 0 and can_index_rows(query, keys, values):
        return softmax_attention_indexed(query, keys, values, cache.row_indices, memory_lengths=cache.lengths)
    keys, values = cache.tensors[:2]
    query, keys, bias = apply_positions(positions, query, keys, keys.shape[2] - 1)
    return softmax_attention(query, keys, values, memory_lengths=cache.lengths, mask=bias, dropout=dropout)


def cached_gaussian_attention(gaussians: Gaussians, cache: Cache, first: int) -> Float[Tensor, "batch heads 1 size"]:
    """Return Gaussian attention of the query at position ``first`` to the cached values, the cache's first tensor."""
    values = cache.rows[0]
    if can_index_rows(values):
        return gaussian_attention_indexed(
            values, cache.row_indices, gaussians, first=first, memory_lengths=cache.lengths
        )
    query: dict[str, Any] = {"queries": 1, "first": first, "memory_lengths": cache.lengths}
    return gaussian_attention(cache.tensors[0], **vars(gaussians), **query)
