"""Models from their settings."""

from typing import TypeVar, assert_never

from torch import nn

from structattn.building.layers import build_embedding, build_layers, build_output
from structattn.building.recurrent import build_recurrent
from structattn.building.two_stream import two_stream_encoder_decoder, two_stream_language_model
from structattn.building.words import Words, build_spelling, build_word_embedding
from structattn.models import EncoderDecoder, LanguageModel, MaskedLanguageModel, initialize_transformer
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.settings.mechanisms import Softmax
from structattn.settings.model import LanguageModelSettings, MaskedLanguageModelSettings
from structattn.settings.models import ModelSettings
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.transformer import TransformerSettings
from structattn.settings.two_stream import TwoStreamEncoderDecoderSettings, TwoStreamSettings
from structattn.support.errors import SettingsError

Model = TypeVar("Model", bound=nn.Module)


def build_model(settings: ModelSettings, vocabulary_size: int) -> nn.Module:
    """The model that the settings describe, with initial weights drawn from torch's global generator.

    Args:
        settings: of any kind of model.
        vocabulary_size: all ids, <pad>, <bos> and <eos> included; of a model that reads two sequences, those of both.
    """
    match settings:
        case LanguageModelSettings() | TwoStreamSettings():
            return build_language_model(settings, Words(vocabulary_size))
        case MaskedLanguageModelSettings():
            return build_masked_language_model(settings, vocabulary_size)
        case LstmSettings() | ElmanSettings():
            return build_recurrent(settings, Words(vocabulary_size))
        case EncoderDecoderSettings() | TwoStreamEncoderDecoderSettings():
            return build_encoder_decoder(settings, Words(vocabulary_size), Words(vocabulary_size))
    assert_never(settings)


def build_language_model(settings: LanguageModelSettings | TwoStreamSettings, words: Words) -> LanguageModel:
    """A causal language model with initial weights.

    Raises:
        SettingsError: words are to be spelt, and the data do not say how.
    """
    if isinstance(settings, TwoStreamSettings):
        return _initialized(two_stream_language_model(settings, words.size), settings)
    embedding = build_word_embedding(settings, settings.embedding, words, settings.tied_embeddings, "model.embedding")
    layers = build_layers(settings, settings.layers, causal=True)
    model = LanguageModel(embedding, layers, build_output(settings, words.size, settings.tied_embeddings))
    return _initialized(model, settings)


def build_masked_language_model(settings: MaskedLanguageModelSettings, vocabulary_size: int) -> MaskedLanguageModel:
    """A masked language model with initial weights; one id more than ``vocabulary_size``, the mask, is an input."""
    embedding = build_embedding(settings, vocabulary_size, whole=True, masks=1)
    layers = build_layers(settings, settings.layers, causal=False)
    model = MaskedLanguageModel(embedding, layers, build_output(settings, vocabulary_size, settings.tied_embeddings))
    return _initialized(model, settings)


def build_encoder_decoder(
    settings: EncoderDecoderSettings | TwoStreamEncoderDecoderSettings, source: Words, target: Words
) -> EncoderDecoder:
    """An encoder-decoder with initial weights.

    Args:
        settings: its layers and sizes.
        source: the source vocabulary.
        target: the target vocabulary.

    Raises:
        SettingsError: the source is to share the target's embeddings, and their vocabularies differ in size; or words
            are to be spelt, and nobody knows how.
    """
    if settings.tied_embeddings == "three-way" and source.size != target.size:
        raise SettingsError(
            "model.tied_embeddings: three-way needs one vocabulary, "
            f"got {source.size} source and {target.size} target tokens"
        )
    if isinstance(settings, TwoStreamEncoderDecoderSettings):
        return _initialized(two_stream_encoder_decoder(settings, source.size, target.size), settings)
    return _initialized(_encoder_decoder(settings, source, target), settings)


def _encoder_decoder(settings: EncoderDecoderSettings, source: Words, target: Words) -> EncoderDecoder:
    tied, encoder, decoder = settings.tied_embeddings != "none", settings.encoder, settings.decoder
    cross = (Softmax(),) * len(decoder.layers) if decoder.cross_attention is None else decoder.cross_attention
    shared = settings.tied_embeddings == "three-way"
    read = None if shared else (encoder.embedding, source, tied, "model.encoder.embedding")
    spelling = decoder.spelling
    return EncoderDecoder(
        build_word_embedding(settings, decoder.embedding, target, tied, "model.decoder.embedding"),
        build_layers(settings, encoder.layers, causal=False),
        build_layers(settings, decoder.layers, causal=True, cross=cross),
        source=None if read is None else build_word_embedding(settings, *read),
        output=build_output(settings, target.size, tied),
        spelling=None
        if spelling is None
        else build_spelling(spelling, settings.d_model, target, "model.decoder.spelling"),
    )


def _initialized(model: Model, settings: TransformerSettings) -> Model:
    initialize_transformer(model, settings.init_scale, settings.weight_init, settings.embedding_init)
    return model
