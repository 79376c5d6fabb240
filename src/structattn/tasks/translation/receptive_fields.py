"""Receptive fields of translation models: the target and source inputs on which each prediction depends."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.models import EncoderDecoder
from structattn.models.encoder_decoder import EncoderDecoderWeights
from structattn.operators import DecoderReceptiveFields, decoder_receptive_fields, receptive_field
from structattn.operators.receptive_field.recursion import Union


def layer_without_weights(model: EncoderDecoder, weights: EncoderDecoderWeights) -> str | None:
    """Return the first layer that mixes positions without attention weights, as stacks do; None if there is none."""
    sides = (
        ("encoder", model.encoder.blocks, [(own, None) for own in weights.encoder]),
        ("decoder", model.decoder.blocks, weights.decoder),
    )
    for side, blocks, of_side in sides:
        for index, (block, of_block) in enumerate(zip(blocks, of_side, strict=True)):
            if block.lacks_weights(*of_block):
                return f"{side} layer {index}"
    return None


def pair_receptive_fields(
    weights: EncoderDecoderWeights,
    source_lengths: Int[Tensor, " batch"] | None,
    lengths: Int[Tensor, " batch"] | None,
    recursion: Union = "clamp",
) -> DecoderReceptiveFields:
    """Return the receptive fields of the decoder's positions (Discrete Transformer paper, section 5).

    Args:
        weights: of all layers that mix positions.
        source_lengths: number of source tokens per pair; None: no padding.
        lengths: number of target tokens per pair; None: no padding.
        recursion: ``union`` of ``receptive_field``.
    """
    encoder = _encoder_field(weights, source_lengths, recursion)
    options = {"lengths": lengths, "memory_lengths": source_lengths}
    return decoder_receptive_fields(weights.decoder, encoder, union=recursion, **options)


def _encoder_field(
    weights: EncoderDecoderWeights, lengths: Tensor | None, recursion: Union
) -> Float[Tensor, "batch source source"]:
    """Return the identity for an encoder without self-attention."""
    attended = [own for own in weights.encoder if own is not None]
    if attended:
        return receptive_field(attended, lengths=lengths, union=recursion)
    across = next(cross for _, cross in weights.decoder if cross is not None)
    return torch.eye(across.shape[-1], dtype=across.dtype, device=across.device).expand(len(across), -1, -1)
