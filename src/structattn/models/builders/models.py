"""Build models from their settings."""

from typing import TypeVar, assert_never

from torch import nn

from structattn.models import EncoderDecoder, LanguageModel, MaskedLanguageModel, initialize_transformer
from structattn.models.builders.embeddings import VocabularySpec, build_spelling, build_word_embedding
from structattn.models.builders.layers import build_embedding, build_layers, build_output
from structattn.models.builders.recurrent import build_recurrent
from structattn.models.builders.two_stream import two_stream_encoder_decoder, two_stream_language_model
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.settings.mechanisms import Softmax
from structattn.settings.model import LanguageModelSettings, MaskedLanguageModelSettings
from structattn.settings.models import OwnModelSettings
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.transformer import TransformerSettings
from structattn.settings.two_stream import TwoStreamEncoderDecoderSettings, TwoStreamSettings
from structattn.support.errors import SettingsError

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
    layers = build_layers(settings, settings.layers, causal=True)
    model = LanguageModel(embedding, layers, build_output(settings, vocabulary.size, settings.tied_embeddings))
    return _initialized(model, settings)


def build_masked_language_model(settings: MaskedLanguageModelSettings, vocabulary_size: int) -> MaskedLanguageModel:
    """Build a masked language model with initial weights; its input has one more id, the mask."""
    embedding = build_embedding(settings, vocabulary_size, whole=True, num_masks=1)
    layers = build_layers(settings, settings.layers, causal=False)
    model = MaskedLanguageModel(embedding, layers, build_output(settings, vocabulary_size, settings.tied_embeddings))
    return _initialized(model, settings)


def build_encoder_decoder(
    settings: EncoderDecoderSettings | TwoStreamEncoderDecoderSettings, source: VocabularySpec, target: VocabularySpec
) -> EncoderDecoder:
    """Build an encoder-decoder with initial weights.

    Args:
        settings: the settings of the model.
        source: the source vocabulary.
        target: the target vocabulary.

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
