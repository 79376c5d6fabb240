"""Positions and dropout rates shared by several builders."""

from torch import nn

from structattn.attention.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    ScorePositions,
    SinusoidalPositions,
)
from structattn.settings.positions import Alibi, Learned, Relative, Rotary, Sinusoidal
from structattn.settings.transformer import TransformerSettings


def score_positions(settings: TransformerSettings, num_heads: int, size: int) -> ScorePositions | None:
    """Return new positions that act on the attention scores of one layer; None for other kinds of positions."""
    match settings.positions:
        case Rotary() as rotary:
            return RotaryPositions(size, rotary.base, rotary.layout)
        case Relative(base=base):
            return RelativePositions(num_heads * size, num_heads, base)
        case Alibi(variant=variant):
            return AlibiPositions(num_heads, variant)
        case _:
            return None


def dropout_rate(settings: TransformerSettings, rate: float | None) -> float:
    """Return ``rate``, or the general dropout rate where it is None."""
    return settings.dropout if rate is None else rate


def added_positions(settings: TransformerSettings) -> nn.Module | None:
    """Return positions that are added to embeddings; None for other kinds of positions."""
    match settings.positions:
        case Sinusoidal() as sines:
            return SinusoidalPositions(settings.d_model, sines.layout, sines.base, sines.denominator, sines.direction)
        case Learned(max_positions=max_positions):
            return LearnedPositions(settings.d_model, max_positions)
        case _:
            return None
