"""Receptive fields: the inputs on which each position depends, exact for hard attention, relaxed for weights."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, checked_range, inside, require_shape, without_autocast
from structattn.support.shapes import Bool, Float, Int, Lengths

__all__ = ["DecoderReceptiveFields", "decoder_receptive_fields", "receptive_field", "receptive_field_size"]

Layer = tuple[Tensor | None, Tensor | None]
Union = Literal["clamp", "probabilistic"]
Form = Literal["mean", "union", "printed"]
Reduction = Literal["mean", "sum"]


class DecoderReceptiveFields(NamedTuple):
    """Receptive fields of a decoder's positions: target inputs (B, T, T) and source inputs (B, T, S)."""

    target: Tensor
    source: Tensor


def receptive_field(attentions: Sequence[Tensor], *, lengths: Lengths = None, union: Union = "clamp") -> Tensor:
    """Compute on which inputs each position depends after several layers (the Discrete Transformer paper, section 5).

    r(i, 0) = {i}; r(i, l) = r(i, l - 1) and r(z_i, l - 1) of every head's choice z_i. Given choices, this is computed
    exactly. Given weights, it is relaxed to numbers between 0 and 1 through which gradients flow (equation 1):

        S^0 = I,   S^l = min(S^(l-1) + (sum_h Z^(l,h)) S^(l-1), 1).

    Entries clipped at 1 have gradient zero. Given the choices, an input outside of r(i, L) cannot change
    the output at position i after L layers, provided that all other sublayers act on each position separately.
    Cost: O(L * B * H * T^2) for choices; O(L * B * T^3) for weights, H times that with ``union="probabilistic"``.

    Args:
        attentions: for each layer, the lowest first, choices (B, H, T) as ``hard_attention`` gives them (-1: none), or
            weights (B, H, T, T), drawn, one-hot or soft.
        lengths: the number of positions of each sequence; later ones depend on nothing and nothing depends on them,
            whatever the attentions contain there.
        union: for weights only: "clamp", as above, or "probabilistic", 1 - (1 - s_ij) prod_h (1 - sum_k z_ik s_kj),
            not in the paper, which never quite saturates.

    Returns:
        (B, T, T), row i the inputs that position i depends on: booleans for choices, numbers in float32 or better for
        weights.

    Raises:
        ValueError: no layer; choices mixed with weights; shapes, lengths or choices do not fit.
    """
    if not attentions:
        raise ValueError("attentions is empty; expected at least one layer")
    if attentions[0].dim() not in (3, 4):
        raise ValueError(f"attentions[0] has shape {tuple(attentions[0].shape)}; expected (B, H, T) or (B, H, T, T)")
    batch, time = attentions[0].shape[0], attentions[0].shape[2]
    here = _here(lengths, batch, time, attentions[0].device)
    field = _identity(attentions[0], here)
    for attention in attentions:
        field = _attended(field, attention, field, here, here, union)
    return field


def decoder_receptive_fields(
    layers: Sequence[Layer],
    encoder_field: Tensor,
    *,
    lengths: Lengths = None,
    memory_lengths: Lengths = None,
    union: Union = "clamp",
) -> DecoderReceptiveFields:
    """Compute on which target and source inputs each position of a decoder depends; see ``receptive_field``.

    Two matrices go through the layers: self-attention widens both, and cross attention widens the one of the source by
    the encoder's fields, min(S + (sum_h Z^h) S_encoder, 1).

    Args:
        layers: for each decoder layer its self-attention, (B, H, T) or (B, H, T, T), and its cross attention, (B, H, T)
            or (B, H, T, S), in this order; None for one that the layer lacks.
        encoder_field: (B, S, S), by ``receptive_field``, booleans with choices and numbers with weights.
        lengths: the number of target positions of each sequence.
        memory_lengths: the number of source positions of each sequence.
        union: as for ``receptive_field``.

    Raises:
        ValueError: no attention in any layer; shapes, dtypes, lengths or choices do not fit.
    """
    first = next((attention for layer in layers for attention in layer if attention is not None), None)
    if first is None:
        raise ValueError("layers contain no attention; expected at least one")
    batch, time, sources = first.shape[0], first.shape[2], encoder_field.shape[-1]
    require_shape("encoder_field", encoder_field, (batch, sources, sources), "(B, S, S)")
    here = _here(lengths, batch, time, first.device)
    source_here = _here(memory_lengths, batch, sources, first.device)
    target = _identity(first, here)
    relaxed = target.is_floating_point()
    if not (encoder_field.is_floating_point() if relaxed else encoder_field.dtype == torch.bool):
        expected = "numbers with weights" if relaxed else "booleans with choices"
        raise ValueError(f"encoder_field is {encoder_field.dtype}; expected {expected}")
    source = target.new_zeros(batch, time, sources)
    encoder_field = torch.where(source_here[:, :, None] & source_here[:, None], encoder_field, 0).to(target.dtype)
    for own, cross in layers:
        if own is not None:
            source = _attended(source, own, source, here, here, union)
            target = _attended(target, own, target, here, here, union)
        if cross is not None:
            source = _attended(source, cross, encoder_field, here, source_here, union)
    return DecoderReceptiveFields(target, source)


def receptive_field_size(
    field: Float[Tensor, "batch positions inputs"] | Bool[Tensor, "batch positions inputs"],
    *,
    form: Form = "mean",
    counted: Bool[Tensor, "batch positions"] | None = None,
    own_position: bool = True,
    lengths: Lengths = None,
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
        One number, in float32 or better. Without any counted position or sequence, zero.

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
    field = field.to(torch.promote_types(field.dtype, torch.float32))
    here = _counted(counted, lengths, batch, time, field.device)
    kept = torch.where(here[..., None], field, 0)
    if not own_position:
        kept = kept.masked_fill(torch.eye(time, count, dtype=torch.bool, device=field.device), 0)
    total = kept.sum() if form == "mean" else below_one(kept.sum(1 if form == "union" else 2)).sum()
    if reduction == "sum":
        return total
    return total / (here.sum().clamp(min=1) if form == "mean" else max(batch, 1))


def _attended(
    field: Tensor, attention: Tensor, attended: Tensor, here: Tensor, attended_here: Tensor, union: Union
) -> Tensor:
    """Return the field after one more attention, with choices or weights past the lengths masked."""
    if union not in get_args(Union):
        raise ValueError(f"union={union!r}; expected one of {get_args(Union)}")
    batch, time, _ = field.shape
    if attention.is_floating_point() != field.is_floating_point():
        raise ValueError(f"an attention is {attention.dtype}; expected choices only, or weights only")
    if not field.is_floating_point():
        require_shape("choices", attention, (batch, None, time), "(B, H, T)")
        choices = torch.where(here[:, None], attention, -1)
        return hard_step(field, checked_range(choices, -1, attended.shape[1] - 1, "choices"), attended)
    require_shape("weights", attention, (batch, None, time, attended.shape[1]), "(B, H, T, S)")
    weights = torch.where((here[:, :, None] & attended_here[:, None])[:, None], attention.to(field.dtype), 0)
    with without_autocast(field.device):
        return relaxed_step(field, weights, attended, union)


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


def below_one(total: Tensor) -> Tensor:
    """Return min(total, 1), with gradient zero where the result is 1."""
    return torch.where(total >= 1, 1, total)  # NaN stays


def _identity(attention: Tensor, here: Tensor) -> Tensor:
    """Return S^0 (B, T, T): booleans for choices, numbers for weights; zeros past the length."""
    unit = torch.eye(here.shape[1], dtype=torch.bool, device=here.device) & here[..., None]
    return unit.to(torch.promote_types(attention.dtype, torch.float32)) if attention.is_floating_point() else unit


def _here(lengths: Tensor | None, batch: int, time: int, device: torch.device) -> Tensor:
    return inside(checked_lengths(lengths, batch, time, device), time)


def _counted(
    counted: Tensor | None, lengths: Tensor | None, batch: int, time: int, device: torch.device
) -> Bool[Tensor, "batch positions"]:
    here = _here(lengths, batch, time, device)
    if counted is None:
        return here
    require_shape("counted", counted, (batch, time), "(B, T)")
    return here & counted.bool()
