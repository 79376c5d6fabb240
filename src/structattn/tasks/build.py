"""Models from their settings."""

from structattn.attention import (
    AttentionLayer,
    NondeterministicStackAttention,
    SoftmaxAttention,
    SuperpositionStackAttention,
)
from structattn.attention.positions import SinusoidalPositions
from structattn.models import Block, LanguageModel, initialize_language_model
from structattn.settings.layers import Layer, NondeterministicLayer, SuperpositionLayer
from structattn.settings.model import LanguageModelSettings


def build_language_model(settings: LanguageModelSettings, vocabulary_size: int) -> LanguageModel:
    """A language model with initial weights drawn from torch's global generator.

    Args:
        settings: its layers and sizes.
        vocabulary_size: all ids, <pad>, <bos> and <eos> included.
    """
    model = LanguageModel(
        vocabulary_size,
        [_block(settings, layer) for layer in settings.layers],
        settings.width,
        positions=SinusoidalPositions(settings.width) if settings.positions == "sinusoidal" else None,
        dropout=settings.dropout,
        tied=settings.tied,
        final_norm=settings.norm == "pre",
    )
    initialize_language_model(model, settings.initial_scale, settings.initial_embedding)
    return model


def _block(settings: LanguageModelSettings, layer: Layer) -> Block:
    return Block(
        settings.width, _attention(settings, layer), settings.feedforward_width, settings.dropout, settings.norm
    )


def _attention(settings: LanguageModelSettings, layer: Layer) -> AttentionLayer:
    if isinstance(layer, SuperpositionLayer):
        return SuperpositionStackAttention(settings.width, layer.vector, layer.pushed_activation)
    if isinstance(layer, NondeterministicLayer):
        return NondeterministicStackAttention(
            settings.width, layer.states, layer.symbols, layer.vector, layer.pushed_activation
        )
    return SoftmaxAttention(settings.width, layer.heads or settings.heads, settings.dropout)
