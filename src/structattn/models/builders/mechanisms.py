"""Builders of attention mechanisms, stacks and positions; the entries of ``structattn.settings`` name them."""

from itertools import cycle, islice
from typing import Any, cast

from torch import nn

from structattn import attention  # its layers are imported when they are first used
from structattn.attention.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    ScorePositions,
    SinusoidalPositions,
)
from structattn.settings.attention import CrossGaussian, DeltaProduct, Gaussian, GumbelSoftmax, Hard, Softmax
from structattn.settings.base import Settings
from structattn.settings.embeddings import POSITIONS, Alibi, Learned, Positions, Relative, Rotary, Sinusoidal
from structattn.settings.mechanisms import mechanism_of
from structattn.settings.stacks import Nondeterministic, StackPointer, StackTrans, Superposition
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


def dropout_rate(settings: TransformerSettings, rate: float | None) -> float:
    """Return ``rate``, or the general dropout rate where it is None."""
    return settings.dropout if rate is None else rate


def superposition(d_model: int, stack: Superposition) -> attention.AttentionLayer:
    """Return superposition stack attention."""
    return attention.SuperpositionStackAttention(
        d_model, stack.stack_embedding_size, pushed_activation=stack.pushed_activation, num_heads=stack.num_heads
    )


def nondeterministic(d_model: int, stack: Nondeterministic) -> attention.AttentionLayer:
    """Return nondeterministic stack attention."""
    sizes = stack.num_states, stack.stack_alphabet_size, stack.stack_embedding_size
    return attention.NondeterministicStackAttention(
        d_model,
        *sizes,
        pushed_activation=stack.pushed_activation,
        window=stack.window,
        pop_offset=stack.pop_offset,
        phase_offset=stack.phase_offset,
    )


def stack_pointer(d_model: int, stack: StackPointer) -> attention.AttentionLayer:
    """Return stack pointer attention."""
    return attention.StackPointerAttention(d_model, bottom=stack.bottom, num_heads=stack.num_heads)


def stack_trans(d_model: int, stack: StackTrans) -> attention.AttentionLayer:
    """Return the stacks of StackTrans."""
    sizes = stack.stack_embedding_size, stack.num_heads
    return attention.StackTransAttention(d_model, *sizes, depth=stack.depth, form=stack.form, read=stack.read)


def softmax(settings: TransformerSettings, softmax: Softmax, causal: bool) -> attention.AttentionLayer:
    """Return softmax attention."""
    d_model, num_heads = settings.d_model, softmax.num_heads or settings.num_heads
    rate = dropout_rate(settings, settings.attention_dropout)
    positions = score_positions(settings, num_heads, d_model // num_heads)
    return attention.SoftmaxAttention(
        d_model, num_heads, dropout=rate, causal=causal, bias=settings.bias, positions=positions
    )


def hard(settings: TransformerSettings, hard: Hard, causal: bool) -> attention.AttentionLayer:
    """Return hard attention."""
    d_model, num_heads = settings.d_model, hard.num_heads or settings.num_heads
    positions = score_positions(settings, num_heads, d_model // num_heads)
    return attention.HardAttention(
        d_model, num_heads, causal=causal, bias=settings.bias, positions=positions, **sampling_options(hard)
    )


def sampling_options(settings: GumbelSoftmax) -> dict[str, Any]:
    """Return the arguments of layers with hard attention that say how it is sampled."""
    names = "temperature", "straight_through", "noise"
    return {name: getattr(settings, name) for name in names}


def gaussian(settings: TransformerSettings, gaussian: Gaussian, causal: bool) -> attention.AttentionLayer:
    """Return Gaussian attention."""
    d_model, num_heads = settings.d_model, gaussian.num_heads or settings.num_heads
    learned = gaussian.num_learned_heads
    return attention.GaussianAttention(
        d_model,
        _offsets(gaussian, num_heads, (-1.0, 0.0) if causal else (-1.0, 1.0)),
        num_learned_heads=learned,
        kernel=gaussian.kernel,
        window=gaussian.window,
        sigma=gaussian.sigma,
        causal=causal,
        dropout=dropout_rate(settings, settings.attention_dropout),
        positions=score_positions(settings, learned, d_model // num_heads) if learned else None,
    )


def delta_product(settings: TransformerSettings, delta: DeltaProduct, causal: bool) -> attention.AttentionLayer:
    """Return gated DeltaProduct, which runs from left to right in bidirectional models, too."""
    return attention.DeltaProductAttention(
        settings.d_model,
        delta.num_heads or settings.num_heads,
        delta.num_householder,
        key_size=delta.key_size,
        value_size=delta.value_size,
        gate=delta.gate,
        negative_eigenvalues=delta.negative_eigenvalues,
        convolution_size=delta.convolution_size,
    )


def cross_softmax(settings: TransformerSettings, softmax: Softmax) -> attention.CrossAttentionLayer:
    """Return softmax attention to another sequence."""
    rate = dropout_rate(settings, settings.attention_dropout)
    return attention.CrossSoftmaxAttention(
        settings.d_model, softmax.num_heads or settings.num_heads, dropout=rate, bias=settings.bias
    )


def cross_hard(settings: TransformerSettings, hard: Hard) -> attention.CrossAttentionLayer:
    """Return hard attention to another sequence."""
    num_heads = hard.num_heads or settings.num_heads
    return attention.CrossHardAttention(settings.d_model, num_heads, bias=settings.bias, **sampling_options(hard))


def cross_gaussian(settings: TransformerSettings, gaussian: CrossGaussian) -> attention.CrossAttentionLayer:
    """Return Gaussian attention to another sequence."""
    return attention.CrossGaussianAttention(
        settings.d_model,
        _offsets(gaussian, gaussian.num_heads or settings.num_heads, (-1.0, 0.0, 1.0)),
        num_learned_heads=gaussian.num_learned_heads,
        ratio=1.0 if gaussian.length_ratio is None else gaussian.length_ratio,  # tasks/model.py sets that of the data
        floor=gaussian.floor,
        kernel=gaussian.kernel,
        window=gaussian.window,
        sigma=gaussian.sigma,
        dropout=dropout_rate(settings, settings.attention_dropout),
    )


def _offsets(gaussian: Gaussian, num_heads: int, default: tuple[float, ...]) -> list[float]:
    return list(islice(cycle(gaussian.offsets or default), num_heads - gaussian.num_learned_heads))


def build_attention(settings: TransformerSettings, layer: Settings, causal: bool) -> attention.AttentionLayer | None:
    """Return the self-attention of a layer; None for ``attention: none``."""
    mechanism, built = mechanism_of(layer), None
    if mechanism.self_attention is not None:
        built = mechanism.self_attention(settings, layer, causal)
    elif mechanism.layer is not None:
        built = mechanism.layer(settings.d_model, layer)
    return cast("attention.AttentionLayer | None", built)


def build_stack(d_model: int, stack: Settings) -> attention.AttentionLayer:
    """Return stack attention that is added to a layer."""
    build = mechanism_of(stack).layer
    assert build is not None
    return cast(attention.AttentionLayer, build(d_model, stack))


def build_cross_attention(settings: TransformerSettings, cross: Settings) -> attention.CrossAttentionLayer | None:
    """Return the cross-attention of a layer; None for ``attention: none``."""
    use = mechanism_of(cross).cross_attention
    return None if use is None else use.build(settings, cross)
