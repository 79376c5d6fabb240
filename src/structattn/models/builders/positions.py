"""Builders of positional encodings; the entries of ``structattn.settings`` name them."""

from torch import nn

from structattn.attention.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    ScorePositions,
    SinusoidalPositions,
)
from structattn.settings.embeddings import POSITIONS, Alibi, Learned, Positions, Relative, Rotary, Sinusoidal
from structattn.settings.transformer import TransformerSettings


def added_positions(settings: TransformerSettings) -> nn.Module | None:
    """Return positions that are added to embeddings; None for other kinds of positions."""
    build = _entry(settings).added
    return None if build is None else build(settings.d_model, settings.positions)


def score_positions(settings: TransformerSettings, num_heads: int, size: int) -> ScorePositions | None:
    """Return new positions that act on the attention scores of one layer; None for other kinds of positions."""
    build = _entry(settings).scores
    return None if build is None else build(num_heads, size, settings.positions)


def _entry(settings: TransformerSettings) -> Positions:
    return POSITIONS[getattr(settings.positions, "kind")]  # noqa: B009 - registered classes have it


def sinusoidal(d_model: int, settings: Sinusoidal) -> nn.Module:
    """Return sinusoidal positions."""
    return SinusoidalPositions(d_model, settings.layout, settings.base, settings.denominator, settings.direction)


def learned(d_model: int, settings: Learned) -> nn.Module:
    """Return learned positions."""
    return LearnedPositions(d_model, settings.max_positions)


def relative(num_heads: int, size: int, settings: Relative) -> ScorePositions:
    """Return relative positions."""
    return RelativePositions(num_heads * size, num_heads, settings.base)


def rotary(num_heads: int, size: int, settings: Rotary) -> ScorePositions:
    """Return rotary positions."""
    return RotaryPositions(size, settings.base, settings.layout)


def alibi(num_heads: int, size: int, settings: Alibi) -> ScorePositions:
    """Return ALiBi's biases."""
    return AlibiPositions(num_heads, settings.variant)
