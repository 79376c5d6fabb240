"""Receptive fields: the inputs on which each position depends, exact for hard attention, relaxed for weights."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, checked_range, inside, require_shape, without_autocast
from structattn.operators.receptive_field.recursion import Union, hard_step, receptive_field_size, relaxed_step
from structattn.support.shapes import Int

__all__ = ["DecoderReceptiveFields", "decoder_receptive_fields", "receptive_field", "receptive_field_size"]

Layer = tuple[Tensor | None, Tensor | None]


class DecoderReceptiveFields(NamedTuple):
    """Receptive fields of a decoder's positions: target inputs (B, T, T) and source inputs (B, T, S)."""

    target: Tensor
    source: Tensor


def receptive_field(
    attentions: Sequence[Tensor], *, lengths: Int[Tensor, " batch"] | None = None, union: Union = "clamp"
) -> Tensor:
    """Compute on which inputs each position depends after several layers (the Discrete Transformer paper, section 5).

    r(i, 0) = {i}; r(i, l) = r(i, l - 1) and r(z_i, l - 1) of every head's choice z_i. Given choices, this is computed
    exactly. Given weights, it is relaxed to numbers between 0 and 1 through which gradients flow (equation 1):

        S^0 = I,   S^l = min(S^(l-1) + (sum_h Z^(l,h)) S^(l-1), 1).

    Entries clipped at 1 have gradient zero. Given the choices, an input outside of r(i, L) cannot change what
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
    lengths: Int[Tensor, " batch"] | None = None,
    memory_lengths: Int[Tensor, " batch"] | None = None,
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
    source = target.new_zeros(batch, time, sources)
    encoder_field = torch.where(source_here[:, :, None] & source_here[:, None], encoder_field, 0).to(target.dtype)
    for own, cross in layers:
        if own is not None:
            source = _attended(source, own, source, here, here, union)
            target = _attended(target, own, target, here, here, union)
        if cross is not None:
            source = _attended(source, cross, encoder_field, here, source_here, union)
    return DecoderReceptiveFields(target, source)


def _here(lengths: Tensor | None, batch: int, time: int, device: torch.device) -> Tensor:
    return inside(checked_lengths(lengths, batch, time, device), time)


def _identity(attention: Tensor, here: Tensor) -> Tensor:
    """Return S^0 (B, T, T): booleans for choices, numbers for weights; zeros past the length."""
    unit = torch.eye(here.shape[1], dtype=torch.bool, device=here.device) & here[..., None]
    return unit.to(torch.promote_types(attention.dtype, torch.float32)) if attention.is_floating_point() else unit


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
