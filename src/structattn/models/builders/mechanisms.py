"""Builders of positions, attention mechanisms and stacks, by settings class."""

from collections.abc import Callable, Mapping
from itertools import cycle, islice
from types import MappingProxyType
from typing import Any, TypeVar

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
from structattn.operators import RecurrentStack
from structattn.settings.base import Settings
from structattn.settings.embeddings import Alibi, Learned, Relative, Rotary, Sinusoidal
from structattn.settings.mechanisms import (
    CrossGaussian,
    Gaussian,
    Hard,
    NoAttention,
    Nondeterministic,
    RecurrentSuperposition,
    Softmax,
    StackPointer,
    Stratified,
    Superposition,
)
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


_T = TypeVar("_T")
StackBuilder = Callable[[int, Any], AttentionLayer]
"""d_model, settings of the stack -> layer."""
HeadsBuilder = Callable[[TransformerSettings, Any, bool], AttentionLayer]
"""Settings of the model, settings of the mechanism, whether it is causal -> layer."""
CrossBuilder = Callable[[TransformerSettings, Any], CrossAttentionLayer]
"""Settings of the model, settings of the mechanism -> cross-attention layer."""
RecurrentBuilder = Callable[[Any], RecurrentStack]
"""Settings of the stack -> stack of a recurrent network."""


def _superposition(d_model: int, stack: Superposition) -> AttentionLayer:
    return SuperpositionStackAttention(d_model, stack.stack_embedding_size, stack.pushed_activation)


def _nondeterministic(d_model: int, stack: Nondeterministic) -> AttentionLayer:
    sizes = stack.num_states, stack.stack_alphabet_size, stack.stack_embedding_size
    return NondeterministicStackAttention(d_model, *sizes, stack.pushed_activation, stack.window, stack.pop_offset)


def _stack_pointer(d_model: int, stack: StackPointer) -> AttentionLayer:
    return StackPointerAttention(d_model, stack.bottom)


def _softmax(settings: TransformerSettings, softmax: Softmax, causal: bool) -> AttentionLayer:
    d_model, num_heads = settings.d_model, softmax.num_heads or settings.num_heads
    rate = dropout_rate(settings, settings.attention_dropout)
    positions = score_positions(settings, num_heads, d_model // num_heads)
    return SoftmaxAttention(d_model, num_heads, rate, causal, settings.bias, positions)


def _hard(settings: TransformerSettings, hard: Hard, causal: bool) -> AttentionLayer:
    d_model, num_heads = settings.d_model, hard.num_heads or settings.num_heads
    positions = score_positions(settings, num_heads, d_model // num_heads)
    sampling = hard.temperature, hard.straight_through
    return HardAttention(d_model, num_heads, *sampling, causal, settings.bias, positions, hard.noise)


def _gaussian(settings: TransformerSettings, gaussian: Gaussian, causal: bool) -> AttentionLayer:
    d_model, num_heads = settings.d_model, gaussian.num_heads or settings.num_heads
    learned = gaussian.num_learned_heads
    return GaussianAttention(
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


def _cross_softmax(settings: TransformerSettings, softmax: Softmax) -> CrossAttentionLayer:
    rate = dropout_rate(settings, settings.attention_dropout)
    return CrossSoftmaxAttention(settings.d_model, softmax.num_heads or settings.num_heads, rate, settings.bias)


def _cross_hard(settings: TransformerSettings, hard: Hard) -> CrossAttentionLayer:
    num_heads = hard.num_heads or settings.num_heads
    sampling = hard.temperature, hard.straight_through
    return CrossHardAttention(settings.d_model, num_heads, *sampling, settings.bias, hard.noise)


def _cross_gaussian(settings: TransformerSettings, gaussian: CrossGaussian) -> CrossAttentionLayer:
    return CrossGaussianAttention(
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


def _recurrent_superposition(stack: RecurrentSuperposition) -> RecurrentStack:
    pushed, depth = stack.pushed_activation, stack.depth
    return RecurrentStack("superposition", stack.stack_embedding_size, pushed=pushed, depth=depth)


def _recurrent_stratified(stack: Stratified) -> RecurrentStack:
    return RecurrentStack("stratified", stack.stack_embedding_size, pushed=stack.pushed_activation)


def _recurrent_nondeterministic(stack: Nondeterministic) -> RecurrentStack:
    sizes = stack.stack_embedding_size, stack.num_states, stack.stack_alphabet_size
    return RecurrentStack("nondeterministic", *sizes, stack.pushed_activation, stack.window)


STACK_BUILDERS: Mapping[type[Settings], StackBuilder] = MappingProxyType(
    {Superposition: _superposition, Nondeterministic: _nondeterministic, StackPointer: _stack_pointer}
)
HEADS_BUILDERS: Mapping[type[Settings], HeadsBuilder] = MappingProxyType(
    {Softmax: _softmax, Hard: _hard, Gaussian: _gaussian}
)
CROSS_BUILDERS: Mapping[type[Settings], CrossBuilder] = MappingProxyType(
    {Softmax: _cross_softmax, Hard: _cross_hard, CrossGaussian: _cross_gaussian}
)
RECURRENT_BUILDERS: Mapping[type[Settings], RecurrentBuilder] = MappingProxyType(
    {
        RecurrentSuperposition: _recurrent_superposition,
        Stratified: _recurrent_stratified,
        Nondeterministic: _recurrent_nondeterministic,
    }
)


def build_attention(settings: TransformerSettings, layer: Settings, causal: bool) -> AttentionLayer | None:
    """Return the self-attention of a layer; None for ``attention: none``."""
    if isinstance(layer, NoAttention):
        return None
    for kind in type(layer).__mro__:
        if kind in STACK_BUILDERS:
            return STACK_BUILDERS[kind](settings.d_model, layer)
        if kind in HEADS_BUILDERS:
            return HEADS_BUILDERS[kind](settings, layer, causal)
    raise TypeError(f"{type(layer).__name__} has no builder")


def build_stack(d_model: int, stack: Settings) -> AttentionLayer:
    """Return stack attention that is added to a layer."""
    return _builder_of(STACK_BUILDERS, stack)(d_model, stack)


def build_cross_attention(settings: TransformerSettings, cross: Settings) -> CrossAttentionLayer | None:
    """Return the cross-attention of a layer; None for ``attention: none``."""
    return None if isinstance(cross, NoAttention) else _builder_of(CROSS_BUILDERS, cross)(settings, cross)


def build_recurrent_stack(stack: Settings) -> RecurrentStack:
    """Return the stack of a recurrent network."""
    return _builder_of(RECURRENT_BUILDERS, stack)(stack)


def _builder_of(builders: Mapping[type[Settings], _T], settings: Settings) -> _T:
    for kind in type(settings).__mro__:
        if kind in builders:
            return builders[kind]
    raise TypeError(f"{type(settings).__name__} has no builder; expected one of {[each.__name__ for each in builders]}")
