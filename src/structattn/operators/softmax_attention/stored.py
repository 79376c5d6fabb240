"""Softmax attention to keys and values that stand anywhere in a store, and that sequences may have in common."""

import math

from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, require_alike, require_shape
from structattn.operators.common.stored import can_read_stored, require_slots
from structattn.operators.softmax_attention.gradient import softmax_attention_stored_op


def softmax_attention_stored(
    query: Float[Tensor, "batch heads 1 size"],
    keys: Float[Tensor, "stored heads size"],
    values: Float[Tensor, "stored heads value"],
    slots: Int[Tensor, "batch source"],
    *,
    memory_lengths: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch heads 1 value"]:
    """``softmax_attention`` of one query of each sequence, key s of sequence b being row slots[b, s] of ``keys``.

    Rows are read where they stand, so that one that many sequences share comes from memory once. There is no gradient.
    Cost: O(B * H * S * (D + E)) time.

    Args:
        query: (B, H, 1, D).
        keys: (N, H, D).
        values: (N, H, E).
        slots: (B, S), from 0 to N - 1.
        memory_lengths: how many slots of each sequence count; all where None.

    Returns:
        The outputs (B, H, 1, E).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.
        IndexError: a slot is not one of 0 to N - 1.
        RuntimeError: ``can_read_stored`` says no.
    """
    require_shape("query", query, (None, None, 1, None), "(B, H, 1, D)")
    batch, heads, _, size = query.shape
    require_shape("keys", keys, (None, heads, size), "(N, H, D)")
    require_shape("values", values, (len(keys), heads, None), "(N, H, E)")
    require_slots(slots, batch)
    require_alike(query=query, keys=keys, values=values)
    if not can_read_stored(query, keys, values):
        raise RuntimeError("softmax_attention_stored needs the compiled kernel, and has no gradient")
    ends = None if memory_lengths is None else checked_lengths(memory_lengths, batch, slots.shape[1], query.device)
    return softmax_attention_stored_op(query, keys, values, slots, ends, 1 / math.sqrt(max(size, 1)))
