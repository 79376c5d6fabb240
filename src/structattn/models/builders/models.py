"""Build models from their settings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, assert_never

from torch import nn

from structattn import attention  # its layers are imported when they are first used
from structattn.models import (
    Block,
    EachStream,
    EncoderDecoder,
    FeedForward,
    FeedForwardFirst,
    LanguageModel,
    Layers,
    MaskedLanguageModel,
    SemanticStream,
    TwoStreamEmbedding,
    initialize_transformer,
)
from structattn.models.builders.layers import (
    VocabularySpec,
    build_embedding,
    build_layers,
    build_model_layers,
    build_output,
    build_spelling,
    build_word_embedding,
)
from structattn.models.builders.mechanisms import dropout_rate, sampling_options, score_positions
from structattn.models.two_stream import layer_norm
from structattn.settings.attention import Softmax
from structattn.settings.models import OwnModelSettings
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.transformer import (
    EncoderDecoderSettings,
    LanguageModelSettings,
    MaskedLanguageModelSettings,
    TransformerSettings,
    TwoStreamBase,
    TwoStreamEncoderDecoderSettings,
    TwoStreamSettings,
)
from structattn.support.errors import SettingsError
from structattn.support.imports import lazy_function

if TYPE_CHECKING:
    from structattn.models.builders.recurrent import build_recurrent
else:
    build_recurrent = lazy_function("structattn.models.builders.recurrent", "build_recurrent")


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
    return Block(
        d_model,
        _attention(settings, causal),
        attention.CrossTwoStreamAttention(d_model, num_heads, bias=settings.bias, **sampling_options(settings))
        if cross
        else None,
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


def _attention(settings: TwoStreamBase, causal: bool, output_projection: bool = True) -> attention.TwoStreamAttention:
    d_model, num_heads = settings.d_model, settings.num_heads
    positions = score_positions(settings, num_heads, d_model // num_heads)
    return attention.TwoStreamAttention(
        d_model,
        num_heads,
        causal=causal,
        bias=settings.bias,
        positions=positions,
        output_projection=output_projection,
        **sampling_options(settings),
    )


def _feedforward(settings: TwoStreamBase) -> EachStream | None:
    d_model, d_ff, rate = settings.d_model, settings.d_ff, dropout_rate(settings, settings.hidden_dropout)
    return None if d_ff is None else EachStream(FeedForward(d_model, d_ff, rate), FeedForward(d_model, d_ff, rate))


def _semantic(settings: TwoStreamBase) -> SemanticStream:
    return SemanticStream(nn.LayerNorm(settings.d_model) if settings.norm == "pre" else None)


Model = TypeVar("Model", bound=nn.Module)


def build_model(settings: OwnModelSettings, vocabulary_size: int) -> nn.Module:
    """Build a model, with initial weights sampled from torch's global generator.

    Args:
        settings: the settings of any kind of model of this package.
        vocabulary_size: the number of ids, including special tokens; of both sides of an encoder-decoder.
    """
    match settings:
        case LanguageModelSettings() | TwoStreamSettings():
            return build_language_model(settings, VocabularySpec(vocabulary_size))
        case MaskedLanguageModelSettings():
            return build_masked_language_model(settings, vocabulary_size)
        case LstmSettings() | ElmanSettings():
            return build_recurrent(settings, VocabularySpec(vocabulary_size))
        case EncoderDecoderSettings() | TwoStreamEncoderDecoderSettings():
            return build_encoder_decoder(settings, VocabularySpec(vocabulary_size), VocabularySpec(vocabulary_size))
    assert_never(settings)


def build_language_model(
    settings: LanguageModelSettings | TwoStreamSettings, vocabulary: VocabularySpec
) -> LanguageModel:
    """Build a causal language model with initial weights.

    Raises:
        SettingsError: the embeddings need the characters of words, and ``vocabulary`` has none.
    """
    if isinstance(settings, TwoStreamSettings):
        return _initialized(two_stream_language_model(settings, vocabulary.size), settings)
    embedding = build_word_embedding(
        settings, settings.embedding, vocabulary, settings.tied_embeddings, "model.embedding"
    )
    layers = build_model_layers(settings, causal=True)
    model = LanguageModel(embedding, layers, build_output(settings, vocabulary.size, settings.tied_embeddings))
    return _initialized(model, settings)


def build_masked_language_model(settings: MaskedLanguageModelSettings, vocabulary_size: int) -> MaskedLanguageModel:
    """Build a masked language model with initial weights; its input has one more id, the mask."""
    embedding = build_embedding(settings, vocabulary_size, whole=True, num_masks=1)
    layers = build_model_layers(settings, causal=False)
    model = MaskedLanguageModel(embedding, layers, build_output(settings, vocabulary_size, settings.tied_embeddings))
    return _initialized(model, settings)


def build_encoder_decoder(
    settings: EncoderDecoderSettings | TwoStreamEncoderDecoderSettings, source: VocabularySpec, target: VocabularySpec
) -> EncoderDecoder:
    """Build an encoder-decoder with initial weights.

    Raises:
        SettingsError: embeddings are shared and the vocabularies differ in size, or the embeddings need the characters
            of words and a vocabulary has none.
    """
    if settings.tied_embeddings == "three-way" and source.size != target.size:
        raise SettingsError(
            "model.tied_embeddings: three-way needs a joint vocabulary; "
            f"got {source.size} source and {target.size} target tokens"
        )
    if isinstance(settings, TwoStreamEncoderDecoderSettings):
        return _initialized(two_stream_encoder_decoder(settings, source.size, target.size), settings)
    return _initialized(_encoder_decoder(settings, source, target), settings)


def _encoder_decoder(
    settings: EncoderDecoderSettings, source: VocabularySpec, target: VocabularySpec
) -> EncoderDecoder:
    tied, encoder, decoder = settings.tied_embeddings != "none", settings.encoder, settings.decoder
    cross = (Softmax(),) * len(decoder.layers) if decoder.cross_attention is None else decoder.cross_attention
    shared = settings.tied_embeddings == "three-way"
    source_embedding = None if shared else (encoder.embedding, source, tied, "model.encoder.embedding")
    spelling = decoder.spelling
    return EncoderDecoder(
        build_word_embedding(settings, decoder.embedding, target, tied, "model.decoder.embedding"),
        build_layers(settings, encoder.layers, causal=False),
        build_layers(settings, decoder.layers, causal=True, cross=cross),
        source=None if source_embedding is None else build_word_embedding(settings, *source_embedding),
        output=build_output(settings, target.size, tied),
        spelling=None
        if spelling is None
        else build_spelling(spelling, settings.d_model, target, "model.decoder.spelling"),
    )


def _initialized(model: Model, settings: TransformerSettings) -> Model:
    initialize_transformer(model, settings.init_scale, settings.weight_init, settings.embedding_init)
    return model
