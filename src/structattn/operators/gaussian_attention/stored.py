"""Hard-coded attention to values that stand anywhere in a store, and that sequences may have in common."""

from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, require_shape
from structattn.operators.common.stored import can_read_stored, require_slots
from structattn.operators.gaussian_attention.band import band
from structattn.operators.gaussian_attention.gaussians import Gaussians
from structattn.operators.gaussian_attention.gradient import gaussian_attention_stored_op
from structattn.operators.gaussian_attention.weights import Rows


def gaussian_attention_stored(
    values: Float[Tensor, "stored heads size"],
    slots: Int[Tensor, "batch source"],
    heads: Gaussians,
    *,
    first: int,
    memory_lengths: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch heads 1 size"]:
    """``gaussian_attention`` of one query of each sequence, value s of sequence b being row slots[b, s] of ``values``.

    Rows are read where they stand. There is no gradient. Cost: O(B * H * K * d) time, K the number of keys whose weight
    counts.

    Args:
        values: (N, H, d).
        slots: (B, S), from 0 to N - 1.
        heads: what else ``gaussian_attention`` is told.
        first: the position of the query, the first slot's being 0.
        memory_lengths: how many slots of each sequence count; all where None.

    Returns:
        The readings (B, H, 1, d).

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.
        IndexError: a slot is not one of 0 to N - 1.
        RuntimeError: ``can_read_stored`` says no.
    """
    require_shape("values", values, (None, len(heads.offsets), None), "(N, H, d) with one head for each offset")
    require_slots(slots)
    if not can_read_stored(values):
        raise RuntimeError("gaussian_attention_stored needs the compiled kernel, and has no gradient")
    batch, keys = slots.shape
    ends = None if memory_lengths is None else checked_lengths(memory_lengths, batch, keys, values.device)
    rows = Rows(1, keys, first, 0, ends, values.dtype, values.device)
    return gaussian_attention_stored_op(values, slots, *band(heads, rows), ends)
