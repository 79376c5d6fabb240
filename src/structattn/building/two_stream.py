"""Models with two streams from their settings."""

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
from structattn.settings.two_stream import TwoStreamEncoderDecoderSettings, TwoStreamParts, TwoStreamSettings


def two_stream_language_model(settings: TwoStreamSettings, vocabulary_size: int) -> LanguageModel:
    """A language model that predicts from its semantic stream."""
    return LanguageModel(
        _embedding(settings, vocabulary_size, settings.tied_embeddings),
        Layers(_blocks(settings, causal=True), _semantic(settings)),
        build_output(settings, vocabulary_size, settings.tied_embeddings),
    )


def two_stream_encoder_decoder(
    settings: TwoStreamEncoderDecoderSettings, source_size: int, target_size: int
) -> EncoderDecoder:
    """An encoder-decoder that predicts from the decoder's semantic stream; its memory has both streams."""
    tied, shared = settings.tied_embeddings != "none", settings.tied_embeddings == "three-way"
    ends = layer_norm(settings.d_model, two_streams=True) if settings.norm == "pre" else None
    return EncoderDecoder(
        _embedding(settings, target_size, tied),
        Layers(_blocks(settings, causal=False), ends),
        Layers(_blocks(settings, causal=True, across=True), _semantic(settings)),
        source=None if shared else _embedding(settings, source_size, tied),
        output=build_output(settings, target_size, tied),
    )


def _embedding(settings: TwoStreamParts, vocabulary_size: int, whole: bool) -> TwoStreamEmbedding:
    return TwoStreamEmbedding(
        build_embedding(settings, vocabulary_size, whole),
        build_embedding(settings, vocabulary_size, whole, placed=settings.semantic_positions),
    )


def _blocks(settings: TwoStreamParts, causal: bool, across: bool = False) -> Sequence[Block]:
    return [_block(settings, causal, across) for _ in range(settings.num_layers)]


def _block(settings: TwoStreamParts, causal: bool, across: bool) -> Block:
    d_model, num_heads, hidden = settings.d_model, settings.num_heads, settings.d_ff
    choice = (settings.temperature, settings.straight_through)
    positions = score_positions(settings, num_heads, d_model // num_heads)
    return Block(
        d_model,
        TwoStreamAttention(d_model, num_heads, *choice, causal, settings.bias, positions),
        CrossTwoStreamAttention(d_model, num_heads, *choice, settings.bias) if across else None,
        None if hidden is None else EachStream(_maps(settings, hidden), _maps(settings, hidden)),
        norm=settings.norm,
        dropout=settings.dropout,
        two_streams=True,
    )


def _maps(settings: TwoStreamParts, hidden: int) -> FeedForward:
    return FeedForward(settings.d_model, hidden, dropout_rate(settings, settings.hidden_dropout))


def _semantic(settings: TwoStreamParts) -> SemanticStream:
    return SemanticStream(nn.LayerNorm(settings.d_model) if settings.norm == "pre" else None)
