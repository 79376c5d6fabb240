"""The recursion of receptive fields over layers, and their sizes.

Legend: s_ij whether position i depends on input j; z_ik whether it attends to k. Shapes: B batch, H heads, T positions,
K positions attended to, N inputs.
"""

from typing import Literal

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, inside, require_shape
from structattn.support.shapes import Bool, Float, Int

Union = Literal["clamp", "probabilistic"]


def below_one(total: Tensor) -> Tensor:
    """Return min(total, 1), with gradient zero where the result is 1."""
    return torch.where(total < 1, total, 1)


def hard_step(
    field: Bool[Tensor, "batch positions inputs"],
    choices: Int[Tensor, "batch heads positions"],
    attended: Bool[Tensor, "batch memory inputs"],
) -> Bool[Tensor, "batch positions inputs"]:
    """r(i) with r(z_i) of every head added to it; a choice of -1 adds nothing. Cost: O(B * H * T * N)."""
    for choice in choices.unbind(1):
        rows = choice.clamp(min=0)[..., None].expand(-1, -1, attended.shape[2])
        added = attended.gather(1, rows) if attended.shape[1] else torch.zeros_like(field)
        field = field | (added & (choice >= 0)[..., None])
    return field


def relaxed_step(
    field: Float[Tensor, "batch positions inputs"],
    weights: Float[Tensor, "batch heads positions memory"],
    attended: Float[Tensor, "batch memory inputs"],
    union: Union,
) -> Float[Tensor, "batch positions inputs"]:
    """s_ij + sum_h sum_k z^h_ik s_kj, at most 1 (equation 1 of the paper, its sum running over heads as well).

    "probabilistic" gives 1 - (1 - s_ij) prod_h (1 - sum_k z^h_ik s_kj) instead: the probability that i depends on j,
    if it did so before and does so through each head independently. Cost: O(B * T * K * N), times H for the latter.
    """
    if union == "clamp":
        return below_one(field + weights.sum(1) @ attended)
    independent = 1 - field
    for weight in weights.unbind(1):
        independent = independent * (1 - weight @ attended)
    return 1 - independent


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
