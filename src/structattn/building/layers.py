"""Layers of transformers from their settings."""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import assert_never

from torch import nn

from structattn.attention import (
    AttentionLayer,
    CrossAttentionLayer,
    CrossGaussianAttention,
    CrossHardAttention,
    CrossSoftmaxAttention,
    GaussianAttention,
    HardAttention,
    NondeterministicStackAttention,
    SoftmaxAttention,
    StackPointerAttention,
    SuperpositionStackAttention,
)
from structattn.attention.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    ScorePositions,
    SinusoidalPositions,
)
from structattn.models import Block, Embedding, FeedForward, Layers
from structattn.settings.layers import AddedStack, Cross, Layer
from structattn.settings.mechanisms import (
    CrossGaussian,
    Gaussian,
    Hard,
    Nondeterministic,
    Nothing,
    Softmax,
    StackPointer,
    Superposition,
)
from structattn.settings.positions import Alibi, Learned, Relative, Rotary, Sinusoidal
from structattn.settings.transformer import TransformerSettings
from structattn.support.special_tokens import CLASS_OFFSET


def build_layers(
    settings: TransformerSettings, layers: Sequence[Layer], causal: bool, cross: Sequence[Cross] | None = None
) -> Layers:
    """All blocks of one side of a model; ``cross`` is what each looks at a memory with, None: they have none to see."""
    across = [None] * len(layers) if cross is None else [_cross_attention(settings, each) for each in cross]
    blocks = [_block(settings, layer, causal, other) for layer, other in zip(layers, across, strict=True)]
    return Layers(blocks, nn.LayerNorm(settings.d_model) if settings.norm == "pre" else None)


def build_embedding(
    settings: TransformerSettings, vocabulary_size: int, whole: bool, masks: int = 0, placed: bool = True
) -> Embedding:
    """Embeddings with the positions that are added to them, unless they are not to be ``placed``."""
    positions = added_positions(settings) if placed else None
    rate = dropout_rate(settings, settings.embedding_dropout)
    return Embedding(vocabulary_size, settings.d_model, positions, rate, whole, masks)


def build_output(settings: TransformerSettings, vocabulary_size: int, tied: bool) -> nn.Linear | None:
    """The output layer, which only a model without tied embeddings has."""
    return None if tied else nn.Linear(settings.d_model, vocabulary_size - CLASS_OFFSET)


def score_positions(settings: TransformerSettings, num_heads: int, size: int) -> ScorePositions | None:
    """Positions that act on the scores of one layer, whose own they are because they may have parameters."""
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
    """A rate, or the one that holds where none is given."""
    return settings.dropout if rate is None else rate


def added_positions(settings: TransformerSettings) -> nn.Module | None:
    """Positions that are added to embeddings; None where they act elsewhere, or there are none."""
    match settings.positions:
        case Sinusoidal() as sines:
            return SinusoidalPositions(settings.d_model, sines.layout, sines.base, sines.denominator, sines.direction)
        case Learned(max_positions=max_positions):
            return LearnedPositions(settings.d_model, max_positions)
        case _:
            return None


def _block(settings: TransformerSettings, layer: Layer, causal: bool, cross: CrossAttentionLayer | None) -> Block:
    hidden = settings.d_ff if layer.feedforward else None
    rate = dropout_rate(settings, settings.hidden_dropout)
    return Block(
        settings.d_model,
        _self_attention(settings, layer, causal),
        cross,
        None if hidden is None else FeedForward(settings.d_model, hidden, rate),
        None if layer.stack is None else _stack(settings.d_model, layer.stack),
        settings.norm,
        settings.dropout,
    )


def _self_attention(settings: TransformerSettings, layer: Layer, causal: bool) -> AttentionLayer | None:
    d_model, rate = settings.d_model, dropout_rate(settings, settings.attention_dropout)
    match layer:
        case Nothing():
            return None
        case Superposition() | Nondeterministic() | StackPointer():
            return _stack(d_model, layer)
    num_heads = layer.num_heads or settings.num_heads
    match layer:
        case Softmax():
            positions = score_positions(settings, num_heads, d_model // num_heads)
            return SoftmaxAttention(d_model, num_heads, rate, causal, settings.bias, positions)
        case Hard():
            positions = score_positions(settings, num_heads, d_model // num_heads)
            return HardAttention(
                d_model, num_heads, layer.temperature, layer.straight_through, causal, settings.bias, positions
            )
        case Gaussian():
            offsets = _offsets(layer, num_heads, (-1.0, 0.0) if causal else (-1.0, 1.0))
            learned = layer.num_learned_heads
            positions = score_positions(settings, learned, d_model // num_heads) if learned else None
            return GaussianAttention(
                d_model,
                offsets,
                learned,
                layer.kernel,
                layer.window,
                sigma=layer.sigma,
                causal=causal,
                dropout=rate,
                positions=positions,
            )
    assert_never(layer)


def _stack(d_model: int, stack: AddedStack) -> AttentionLayer:
    match stack:
        case Superposition():
            return SuperpositionStackAttention(d_model, stack.stack_embedding_size, stack.pushed_activation)
        case Nondeterministic():
            return NondeterministicStackAttention(
                d_model,
                stack.num_states,
                stack.stack_alphabet_size,
                stack.stack_embedding_size,
                stack.pushed_activation,
                stack.window,
            )
        case StackPointer():
            return StackPointerAttention(d_model, stack.bottom)
    assert_never(stack)


def _cross_attention(settings: TransformerSettings, cross: Cross) -> CrossAttentionLayer | None:
    d_model, rate = settings.d_model, dropout_rate(settings, settings.attention_dropout)
    if isinstance(cross, Nothing):
        return None
    num_heads = cross.num_heads or settings.num_heads
    match cross:
        case Softmax():
            return CrossSoftmaxAttention(d_model, num_heads, rate, settings.bias)
        case Hard():
            return CrossHardAttention(d_model, num_heads, cross.temperature, cross.straight_through, settings.bias)
        case CrossGaussian():
            offsets = _offsets(cross, num_heads, (-1.0, 0.0, 1.0))
            return CrossGaussianAttention(
                d_model,
                offsets,
                cross.num_learned_heads,
                1.0 if cross.length_ratio is None else cross.length_ratio,  # known where there are data, see build.py
                cross.floor,
                cross.kernel,
                cross.window,
                sigma=cross.sigma,
                dropout=rate,
            )
    assert_never(cross)


def _offsets(gaussian: Gaussian, num_heads: int, default: tuple[float, ...]) -> list[float]:
    """One for each head that is not learned."""
    return list(islice(cycle(gaussian.offsets or default), num_heads - gaussian.num_learned_heads))
