"""Builders of positions, attention mechanisms and stacks, by settings class."""

from collections.abc import Callable, Mapping
from itertools import cycle, islice
from types import MappingProxyType
from typing import Any, TypeVar

from torch import nn

from structattn import attention  # its layers are imported when they are first used
from structattn.attention import positions
from structattn.settings.base import Settings
from structattn.settings.embeddings import Alibi, Learned, Relative, Rotary, Sinusoidal
from structattn.settings.mechanisms import (
    CrossGaussian,
    Gaussian,
    Hard,
    NoAttention,
    Nondeterministic,
    Softmax,
    StackPointer,
    Superposition,
)
from structattn.settings.transformer import TransformerSettings


def score_positions(settings: TransformerSettings, num_heads: int, size: int) -> positions.ScorePositions | None:
    """Return new positions that act on the attention scores of one layer; None for other kinds of positions."""
    match settings.positions:
        case Rotary() as rotary:
            return positions.RotaryPositions(size, rotary.base, rotary.layout)
        case Relative(base=base):
            return positions.RelativePositions(num_heads * size, num_heads, base)
        case Alibi(variant=variant):
            return positions.AlibiPositions(num_heads, variant)
        case _:
            return None


def dropout_rate(settings: TransformerSettings, rate: float | None) -> float:
    """Return ``rate``, or the general dropout rate where it is None."""
    return settings.dropout if rate is None else rate


def added_positions(settings: TransformerSettings) -> nn.Module | None:
    """Return positions that are added to embeddings; None for other kinds of positions."""
    match settings.positions:
        case Sinusoidal() as sines:
            return positions.SinusoidalPositions(
                settings.d_model, sines.layout, sines.base, sines.denominator, sines.direction
            )
        case Learned(max_positions=max_positions):
            return positions.LearnedPositions(settings.d_model, max_positions)
        case _:
            return None


_T = TypeVar("_T")
StackBuilder = Callable[[int, Any], attention.AttentionLayer]
"""d_model, settings of the stack -> layer."""
HeadsBuilder = Callable[[TransformerSettings, Any, bool], attention.AttentionLayer]
"""Settings of the model, settings of the mechanism, whether it is causal -> layer."""
CrossBuilder = Callable[[TransformerSettings, Any], attention.CrossAttentionLayer]
"""Settings of the model, settings of the mechanism -> cross-attention layer."""


def _superposition(d_model: int, stack: Superposition) -> attention.AttentionLayer:
    return attention.SuperpositionStackAttention(d_model, stack.stack_embedding_size, stack.pushed_activation)


def _nondeterministic(d_model: int, stack: Nondeterministic) -> attention.AttentionLayer:
    sizes = stack.num_states, stack.stack_alphabet_size, stack.stack_embedding_size
    return attention.NondeterministicStackAttention(
        d_model, *sizes, stack.pushed_activation, stack.window, stack.pop_offset
    )


def _stack_pointer(d_model: int, stack: StackPointer) -> attention.AttentionLayer:
    return attention.StackPointerAttention(d_model, stack.bottom)


def _softmax(settings: TransformerSettings, softmax: Softmax, causal: bool) -> attention.AttentionLayer:
    d_model, num_heads = settings.d_model, softmax.num_heads or settings.num_heads
    rate = dropout_rate(settings, settings.attention_dropout)
    positions = score_positions(settings, num_heads, d_model // num_heads)
    return attention.SoftmaxAttention(d_model, num_heads, rate, causal, settings.bias, positions)


def _hard(settings: TransformerSettings, hard: Hard, causal: bool) -> attention.AttentionLayer:
    d_model, num_heads = settings.d_model, hard.num_heads or settings.num_heads
    positions = score_positions(settings, num_heads, d_model // num_heads)
    sampling = hard.temperature, hard.straight_through
    return attention.HardAttention(d_model, num_heads, *sampling, causal, settings.bias, positions, hard.noise)


def _gaussian(settings: TransformerSettings, gaussian: Gaussian, causal: bool) -> attention.AttentionLayer:
    d_model, num_heads = settings.d_model, gaussian.num_heads or settings.num_heads
    learned = gaussian.num_learned_heads
    return attention.GaussianAttention(
        d_model,
        _offsets(gaussian, num_heads, (-1.0, 0.0) if causal else (-1.0, 1.0)),
        learned,
        gaussian.kernel,
        gaussian.window,
        sigma=gaussian.sigma,
        causal=causal,
        dropout=dropout_rate(settings, settings.attention_dropout),
        positions=score_positions(settings, learned, d_model // num_heads) if learned else None,
    )


def _cross_softmax(settings: TransformerSettings, softmax: Softmax) -> attention.CrossAttentionLayer:
    rate = dropout_rate(settings, settings.attention_dropout)
    return attention.CrossSoftmaxAttention(
        settings.d_model, softmax.num_heads or settings.num_heads, rate, settings.bias
    )


def _cross_hard(settings: TransformerSettings, hard: Hard) -> attention.CrossAttentionLayer:
    num_heads = hard.num_heads or settings.num_heads
    sampling = hard.temperature, hard.straight_through
    return attention.CrossHardAttention(settings.d_model, num_heads, *sampling, settings.bias, hard.noise)


def _cross_gaussian(settings: TransformerSettings, gaussian: CrossGaussian) -> attention.CrossAttentionLayer:
    return attention.CrossGaussianAttention(
        settings.d_model,
        _offsets(gaussian, gaussian.num_heads or settings.num_heads, (-1.0, 0.0, 1.0)),
        gaussian.num_learned_heads,
        1.0 if gaussian.length_ratio is None else gaussian.length_ratio,  # tasks/model.py sets the ratio of the data
        gaussian.floor,
        gaussian.kernel,
        gaussian.window,
        sigma=gaussian.sigma,
        dropout=dropout_rate(settings, settings.attention_dropout),
    )


def _offsets(gaussian: Gaussian, num_heads: int, default: tuple[float, ...]) -> list[float]:
    return list(islice(cycle(gaussian.offsets or default), num_heads - gaussian.num_learned_heads))


STACK_BUILDERS: Mapping[type[Settings], StackBuilder] = MappingProxyType(
    {Superposition: _superposition, Nondeterministic: _nondeterministic, StackPointer: _stack_pointer}
)
HEADS_BUILDERS: Mapping[type[Settings], HeadsBuilder] = MappingProxyType(
    {Softmax: _softmax, Hard: _hard, Gaussian: _gaussian}
)
CROSS_BUILDERS: Mapping[type[Settings], CrossBuilder] = MappingProxyType(
    {Softmax: _cross_softmax, Hard: _cross_hard, CrossGaussian: _cross_gaussian}
)


def build_attention(settings: TransformerSettings, layer: Settings, causal: bool) -> attention.AttentionLayer | None:
    """Return the self-attention of a layer; None for ``attention: none``."""
    if isinstance(layer, NoAttention):
        return None
    for kind in type(layer).__mro__:
        if kind in STACK_BUILDERS:
            return STACK_BUILDERS[kind](settings.d_model, layer)
        if kind in HEADS_BUILDERS:
            return HEADS_BUILDERS[kind](settings, layer, causal)
    raise TypeError(f"{type(layer).__name__} has no builder")


def build_stack(d_model: int, stack: Settings) -> attention.AttentionLayer:
    """Return stack attention that is added to a layer."""
    return builder_of(STACK_BUILDERS, stack)(d_model, stack)


def build_cross_attention(settings: TransformerSettings, cross: Settings) -> attention.CrossAttentionLayer | None:
    """Return the cross-attention of a layer; None for ``attention: none``."""
    return None if isinstance(cross, NoAttention) else builder_of(CROSS_BUILDERS, cross)(settings, cross)


def builder_of(builders: Mapping[type[Settings], _T], settings: Settings) -> _T:
    """Return the builder of a settings class or of its nearest base class.

    Raises:
        TypeError: there is none.
    """
    for kind in type(settings).__mro__:
        if kind in builders:
            return builders[kind]
    raise TypeError(f"{type(settings).__name__} has no builder; expected one of {[each.__name__ for each in builders]}")
