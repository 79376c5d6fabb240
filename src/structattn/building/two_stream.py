"""Models with two streams from their settings."""

from collections.abc import Sequence

from torch import nn

from structattn.attention import CrossTwoStreamAttention, TwoStreamAttention
from structattn.building.layers import build_embedding, build_output, dropout_rate, score_positions
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
        _embedding(settings, vocabulary_size, settings.tied),
        Layers(_blocks(settings, causal=True), _semantic(settings)),
        build_output(settings, vocabulary_size, settings.tied),
    )


def two_stream_encoder_decoder(
    settings: TwoStreamEncoderDecoderSettings, source_size: int, target_size: int
) -> EncoderDecoder:
    """An encoder-decoder that predicts from the decoder's semantic stream; its memory has both streams."""
    tied, shared = settings.tied != "none", settings.tied == "three-way"
    ends = layer_norm(settings.width, two_streams=True) if settings.norm == "pre" else None
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
    return [_block(settings, causal, across) for _ in range(settings.layers)]


def _block(settings: TwoStreamParts, causal: bool, across: bool) -> Block:
    width, heads, hidden = settings.width, settings.heads, settings.feedforward_width
    choice = (settings.temperature, settings.straight_through)
    positions = score_positions(settings, heads, width // heads)
    return Block(
        width,
        TwoStreamAttention(width, heads, *choice, causal, settings.bias, positions),
        CrossTwoStreamAttention(width, heads, *choice, settings.bias) if across else None,
        None if hidden is None else EachStream(_maps(settings, hidden), _maps(settings, hidden)),
        norm=settings.norm,
        dropout=settings.dropout,
        two_streams=True,
    )


def _maps(settings: TwoStreamParts, hidden: int) -> FeedForward:
    return FeedForward(settings.width, hidden, dropout_rate(settings, settings.hidden_dropout))


def _semantic(settings: TwoStreamParts) -> SemanticStream:
    return SemanticStream(nn.LayerNorm(settings.width) if settings.norm == "pre" else None)
