"""Build the blocks, embeddings and output layers of transformers."""

from collections.abc import Sequence

from torch import nn

from structattn.attention import CrossAttentionLayer
from structattn.models import Block, Embedding, FeedForward, Layers
from structattn.models.builders.common import added_positions, dropout_rate
from structattn.models.builders.mechanisms import build_attention, build_cross_attention, build_stack
from structattn.settings.layers import CrossAttention, Layer
from structattn.settings.transformer import TransformerSettings
from structattn.support.special_tokens import CLASS_OFFSET


def build_layers(
    settings: TransformerSettings, layers: Sequence[Layer], causal: bool, cross: Sequence[CrossAttention] | None = None
) -> Layers:
    """Return the blocks of one side of a model; ``cross`` has one mechanism per layer, None: no cross-attention."""
    cross_layers: list[CrossAttentionLayer | None]
    cross_layers = [None] * len(layers) if cross is None else [build_cross_attention(settings, each) for each in cross]
    blocks = [_block(settings, layer, causal, other) for layer, other in zip(layers, cross_layers, strict=True)]
    return Layers(blocks, nn.LayerNorm(settings.d_model) if settings.norm == "pre" else None)


def build_embedding(
    settings: TransformerSettings, vocabulary_size: int, whole: bool, num_masks: int = 0, with_positions: bool = True
) -> Embedding:
    """Return embeddings, with the positions that are added to them if ``with_positions``."""
    positions = added_positions(settings) if with_positions else None
    rate = dropout_rate(settings, settings.embedding_dropout)
    return Embedding(vocabulary_size, settings.d_model, positions, rate, whole, num_masks)


def build_output(settings: TransformerSettings, vocabulary_size: int, tied: bool) -> nn.Linear | None:
    """Return the output layer; None with tied embeddings."""
    return None if tied else nn.Linear(settings.d_model, vocabulary_size - CLASS_OFFSET)


def _block(settings: TransformerSettings, layer: Layer, causal: bool, cross: CrossAttentionLayer | None) -> Block:
    d_ff = settings.d_ff if layer.feedforward else None
    rate = dropout_rate(settings, settings.hidden_dropout)
    return Block(
        settings.d_model,
        build_attention(settings, layer, causal),
        cross,
        None if d_ff is None else FeedForward(settings.d_model, d_ff, rate),
        None if layer.stack is None else build_stack(settings.d_model, layer.stack),
        settings.norm,
        settings.dropout,
    )
