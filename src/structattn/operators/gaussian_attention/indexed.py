"""Gaussian attention of one query per sequence to rows of a shared cache of values."""

from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import integer_lengths, require_row_indices, require_shape
from structattn.operators.common.kernels import can_index_rows
from structattn.operators.gaussian_attention.band import band
from structattn.operators.gaussian_attention.cpu import gaussian_attention_indexed_cpu
from structattn.operators.gaussian_attention.gaussians import Gaussians
from structattn.operators.gaussian_attention.reference import Rows


def gaussian_attention_indexed(
    values: Float[Tensor, "rows heads size"],
    row_indices: Int[Tensor, "batch source"],
    heads: Gaussians,
    *,
    first: int,
    memory_lengths: Int[Tensor, " batch"] | None = None,
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
