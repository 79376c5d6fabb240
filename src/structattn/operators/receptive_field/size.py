"""Size of receptive fields: the regularizer of the Discrete Transformer paper, section 5.1."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, inside, require_shape
from structattn.operators.receptive_field.recursion import below_one

Form = Literal["mean", "union", "printed"]
Reduction = Literal["mean", "sum"]


def receptive_field_size(
    field: Float[Tensor, "batch positions inputs"] | Bool[Tensor, "batch positions inputs"],
    *,
    form: Form = "mean",
    counted: Bool[Tensor, "batch positions"] | None = None,
    own_position: bool = True,
    lengths: Int[Tensor, " batch"] | None = None,
    reduction: Reduction = "mean",
) -> Float[Tensor, ""]:
    """Return R = (1 / T) sum_i sum_j s_ij, the mean number of inputs on which a position depends.

    What the paper prints, sum_i min(sum_j s_ij, 1), is ``form="printed"``: the constant T, with zero gradient, because
    s_ii = 1 never falls. It does not regularize and is kept for comparison. ``form="union"`` is the size of the
    union of the fields that the text means, sum_j min(sum_i s_ij, 1): the same constant where all positions are
    counted, but useful where few are, as in classification. Cost: O(B * T * N).

    Args:
        field: s, (B, T, N), from ``receptive_field``; one of booleans counts as zeros and ones.
        form: which of the three.
        counted: the positions i that count, for instance those from which something is predicted; all where None.
        own_position: count s_ii; with False, N must be at least T, the first T inputs being those of the positions.
        lengths: the number of positions of each sequence; later ones do not count.
        reduction: "mean", over all counted positions of the batch for the form "mean", over its sequences for the
            others; or "sum".

    Returns:
        One number. Without any counted position or sequence, zero.

    Raises:
        ValueError: shapes, lengths or the form do not fit.
    """
    require_shape("field", field, (None, None, None), "(B, T, N)")
    batch, time, count = field.shape
    if form not in ("mean", "union", "printed"):
        raise ValueError(f"form={form!r}; expected 'mean', 'union' or 'printed'")
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction={reduction!r}; expected 'mean' or 'sum'")
    if not own_position and time > count:
        raise ValueError(f"own_position=False needs an input of each position; the field is {time} by {count}")
    field = field if field.is_floating_point() else field.float()
    here = _counted(counted, lengths, batch, time, field.device)
    kept = torch.where(here[..., None], field, 0)
    if not own_position:
        kept = kept.masked_fill(torch.eye(time, count, dtype=torch.bool, device=field.device), 0)
    total = kept.sum() if form == "mean" else below_one(kept.sum(1 if form == "union" else 2)).sum()
    if reduction == "sum":
        return total
    return total / (here.sum().clamp(min=1) if form == "mean" else max(batch, 1))


def _counted(
    counted: Tensor | None, lengths: Tensor | None, batch: int, time: int, device: torch.device
) -> Bool[Tensor, "batch positions"]:
    here = inside(checked_lengths(lengths, batch, time, device), time)
    if counted is None:
        return here
    require_shape("counted", counted, (batch, time), "(B, T)")
    return here & counted.bool()
