"""Build two-stream models."""

from collections.abc import Sequence

from torch import nn

from structattn.attention import CrossTwoStreamAttention, TwoStreamAttention
from structattn.models import (
    Block,
    EachStream,
    EncoderDecoder,
    FeedForward,
    FeedForwardFirst,
    LanguageModel,
    Layers,
    SemanticStream,
    TwoStreamEmbedding,
)
from structattn.models.builders.common import dropout_rate, score_positions
from structattn.models.builders.layers import build_embedding, build_output
from structattn.models.streams import layer_norm
from structattn.settings.two_stream import TwoStreamBase, TwoStreamEncoderDecoderSettings, TwoStreamSettings


def two_stream_language_model(settings: TwoStreamSettings, vocabulary_size: int) -> LanguageModel:
    """Build a language model that predicts from its semantic stream."""
    if settings.layer_form == "simplified":
        layers = Layers([_simplified_block(settings) for _ in range(settings.num_layers)], SemanticStream())
    else:
        layers = Layers(_blocks(settings, causal=True), _semantic(settings))
    return LanguageModel(
        _embedding(settings, vocabulary_size, settings.tied_embeddings),
        layers,
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
    d_model, num_heads = settings.d_model, settings.num_heads
    sampling = (settings.temperature, settings.straight_through)
    return Block(
        d_model,
        _attention(settings, causal),
        CrossTwoStreamAttention(d_model, num_heads, *sampling, settings.bias, settings.noise) if cross else None,
        _feedforward(settings),
        norm=settings.norm,
        dropout=settings.dropout,
        two_streams=True,
    )


def _simplified_block(settings: TwoStreamSettings) -> Block:
    feedforward = _feedforward(settings)
    assert feedforward is not None
    layer = FeedForwardFirst(feedforward, _attention(settings, causal=True, output_projection=False))
    return Block(settings.d_model, layer, norm="none", dropout=settings.dropout, two_streams=True)


def _attention(settings: TwoStreamBase, causal: bool, output_projection: bool = True) -> TwoStreamAttention:
    d_model, num_heads = settings.d_model, settings.num_heads
    sampling = (settings.temperature, settings.straight_through)
    positions = score_positions(settings, num_heads, d_model // num_heads)
    return TwoStreamAttention(
        d_model, num_heads, *sampling, causal, settings.bias, positions, output_projection, settings.noise
    )


def _feedforward(settings: TwoStreamBase) -> EachStream | None:
    d_model, d_ff, rate = settings.d_model, settings.d_ff, dropout_rate(settings, settings.hidden_dropout)
    return None if d_ff is None else EachStream(FeedForward(d_model, d_ff, rate), FeedForward(d_model, d_ff, rate))


def _semantic(settings: TwoStreamBase) -> SemanticStream:
    return SemanticStream(nn.LayerNorm(settings.d_model) if settings.norm == "pre" else None)
