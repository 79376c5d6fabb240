"""Build two-stream models."""

from collections.abc import Sequence

from torch import nn

from structattn.attention import CrossTwoStreamAttention, TwoStreamAttention
from structattn.building.common import dropout_rate, score_positions
from structattn.building.layers import build_embedding, build_output
from structattn.models import (
    Block,
    EachStream,
    EncoderDecoder,
    FeedForward,
    LanguageModel,
    Layers,
    SemanticStream,
    TwoStreamEmbedding,
)
from structattn.models.streams import layer_norm
from structattn.settings.two_stream import TwoStreamBase, TwoStreamEncoderDecoderSettings, TwoStreamSettings


def two_stream_language_model(settings: TwoStreamSettings, vocabulary_size: int) -> LanguageModel:
    """Build a language model that predicts from its semantic stream."""
    return LanguageModel(
        _embedding(settings, vocabulary_size, settings.tied_embeddings),
        Layers(_blocks(settings, causal=True), _semantic(settings)),
        build_output(settings, vocabulary_size, settings.tied_embeddings),
    )


def two_stream_encoder_decoder(
    settings: TwoStreamEncoderDecoderSettings, source_size: int, target_size: int
) -> EncoderDecoder:
    """Build an encoder-decoder that predicts from the semantic stream of its decoder."""
    tied, shared = settings.tied_embeddings != "none", settings.tied_embeddings == "three-way"
    norm = layer_norm(settings.d_model, two_streams=True) if settings.norm == "pre" else None
    return EncoderDecoder(
        _embedding(settings, target_size, tied),
        Layers(_blocks(settings, causal=False), norm),
        Layers(_blocks(settings, causal=True, cross=True), _semantic(settings)),
        source=None if shared else _embedding(settings, source_size, tied),
        output=build_output(settings, target_size, tied),
    )


def _embedding(settings: TwoStreamBase, vocabulary_size: int, whole: bool) -> TwoStreamEmbedding:
    return TwoStreamEmbedding(
        build_embedding(settings, vocabulary_size, whole),
        build_embedding(settings, vocabulary_size, whole, with_positions=settings.semantic_positions),
    )


def _blocks(settings: TwoStreamBase, causal: bool, cross: bool = False) -> Sequence[Block]:
    return [_block(settings, causal, cross) for _ in range(settings.num_layers)]


def _block(settings: TwoStreamBase, causal: bool, cross: bool) -> Block:
    d_model, num_heads, d_ff = settings.d_model, settings.num_heads, settings.d_ff
    sampling = (settings.temperature, settings.straight_through)
    positions = score_positions(settings, num_heads, d_model // num_heads)
    return Block(
        d_model,
        TwoStreamAttention(d_model, num_heads, *sampling, causal, settings.bias, positions),
        CrossTwoStreamAttention(d_model, num_heads, *sampling, settings.bias) if cross else None,
        None if d_ff is None else EachStream(_feedforward(settings, d_ff), _feedforward(settings, d_ff)),
        norm=settings.norm,
        dropout=settings.dropout,
        two_streams=True,
    )


def _feedforward(settings: TwoStreamBase, d_ff: int) -> FeedForward:
    return FeedForward(settings.d_model, d_ff, dropout_rate(settings, settings.hidden_dropout))


def _semantic(settings: TwoStreamBase) -> SemanticStream:
    return SemanticStream(nn.LayerNorm(settings.d_model) if settings.norm == "pre" else None)
