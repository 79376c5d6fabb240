"""What one query of each member reads of stored rows: where these stand, if a kernel can, otherwise from copies."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from structattn.attention.cross_attention_cache import StoredMemory
from structattn.attention.key_value_cache import StoredPast
from structattn.attention.positions.contract import ScorePositions, placed
from structattn.operators import gaussian_attention, softmax_attention
from structattn.operators.common.row_indices import can_index_rows
from structattn.operators.gaussian_attention import Gaussians
from structattn.operators.gaussian_attention.indexed import gaussian_attention_indexed
from structattn.operators.softmax_attention.indexed import softmax_attention_indexed

Stored = StoredPast | StoredMemory


def read_softly(
    query: Float[Tensor, "batch heads 1 size"],
    state: Stored,
    dropout: float = 0.0,
    positions: ScorePositions | None = None,
) -> Float[Tensor, "batch heads 1 size"]:
    """What softmax attention reads with one query of each member; the first two parts are keys and values.

    Args:
        query: of each member.
        state: what it reads.
        dropout: rate at which weights are dropped.
        positions: what acts on the scores; the query then stands where the last of the rows does.
    """
    keys, values = state.rows[:2]
    if positions is None and dropout == 0 and can_index_rows(query, keys, values):
        return softmax_attention_indexed(query, keys, values, state.slots, memory_lengths=state.lengths)
    keys, values = state.parts[:2]
    query, keys, bias = placed(positions, query, keys, keys.shape[2] - 1)
    return softmax_attention(query, keys, values, memory_lengths=state.lengths, mask=bias, dropout=dropout)


def read_hard_coded(gaussians: Gaussians, state: Stored, first: int) -> Float[Tensor, "batch heads 1 size"]:
    """What hard-coded heads read with one query of each member, at position ``first`` counted from the first row.

    The first part is the values.
    """
    values = state.rows[0]
    if can_index_rows(values):
        return gaussian_attention_indexed(values, state.slots, gaussians, first=first, memory_lengths=state.lengths)
    place: dict[str, Any] = {"queries": 1, "first": first, "memory_lengths": state.lengths}
    return gaussian_attention(state.parts[0], **vars(gaussians), **place)
