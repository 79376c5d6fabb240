"""Build models that recognize a language."""

from structattn.models import (
    Embedding,
    LanguageModel,
    Layers,
    LoopedLayers,
    PaddedLayers,
    initialize_transformer,
)
from structattn.models.builders.layers import build_embedding, build_model_layers
from structattn.models.builders.recurrent import build_recurrence, hidden_size_of
from structattn.models.recognition import RecognitionHeads
from structattn.models.recurrent.initialization import initialize_recurrent
from structattn.models.recurrent.language_model import RecurrentLanguageModel
from structattn.models.recurrent.recurrence import OneHot
from structattn.settings.embeddings import TableEmbedding
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.training import Recognition
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.errors import SettingsError
from structattn.support.special_tokens import BOS, CLASS_OFFSET, FIRST_SYMBOL

RecognizerSettings = LanguageModelSettings | LstmSettings | ElmanSettings


def build_recognizer(
    settings: RecognizerSettings, vocabulary_size: int, recognition: Recognition
) -> LanguageModel | RecurrentLanguageModel:
    """Build a causal model with the outputs of ``RecognitionHeads``, and initial weights.

    The embedding has rows for the symbols, in a transformer also for <bos>, and for <eos> if there is an auxiliary
    output, as in FLaRe. Weights are drawn by the rule of the settings, those of the outputs by Xavier's.

    Raises:
        SettingsError: words are composed of characters, the embeddings are to be tied otherwise, or, for language
            modeling, they have another size than the hidden states.
    """
    if not isinstance(settings.embedding, TableEmbedding):
        raise SettingsError(f"model.embedding: {settings.embedding.kind!r}; recognition needs 'table'")
    if settings.tied_embeddings:
        raise SettingsError(
            "model.tied_embeddings: recognition ties those of training.recognition.language_modeling; expected false"
        )
    if isinstance(settings, LanguageModelSettings):
        return _transformer(settings, vocabulary_size, recognition)
    return _recurrent(settings, vocabulary_size, recognition)


def _transformer(settings: LanguageModelSettings, vocabulary_size: int, recognition: Recognition) -> LanguageModel:
    first_id = BOS if recognition.has_auxiliary else CLASS_OFFSET  # without <eos>, <bos> has the first row
    embedding = build_embedding(settings, vocabulary_size, whole=False, first_id=first_id)
    heads = _heads(settings.d_model, vocabulary_size, embedding, recognition)
    layers: Layers | LoopedLayers | PaddedLayers = build_model_layers(settings, causal=True)
    if (loops := settings.loops) is not None and loops.is_padded:
        layers = PaddedLayers(layers, settings.d_model, loops.padding, loops.padding_per_symbol)
    model = LanguageModel(embedding, layers, heads)
    initialize_transformer(model, settings.init_scale, settings.weight_init, settings.embedding_init)
    heads.reset_parameters()
    return model


def _recurrent(
    settings: LstmSettings | ElmanSettings, vocabulary_size: int, recognition: Recognition
) -> RecurrentLanguageModel:
    embedding: OneHot | Embedding = OneHot(vocabulary_size)
    input_size = settings.embedding_size or vocabulary_size - FIRST_SYMBOL
    if settings.embedding_size is not None:
        first_id = CLASS_OFFSET if recognition.has_auxiliary else FIRST_SYMBOL
        embedding = Embedding(vocabulary_size, input_size, scaled=False, first_id=first_id)
    output_size = hidden_size_of(settings)
    if recognition.language_modeling and settings.embedding_size != output_size:
        raise SettingsError(
            f"training.recognition.language_modeling: its output is tied to the embeddings; expected "
            f"model.embedding_size {output_size}, that of the hidden states, got {settings.embedding_size}"
        )
    tied = embedding if isinstance(embedding, Embedding) else None
    heads = _heads(output_size, vocabulary_size, tied, recognition)
    model = RecurrentLanguageModel(embedding, build_recurrence(settings, input_size), heads)
    initialize_recurrent(model, settings.init_scale, settings.weight_init)
    heads.reset_parameters()
    return model


def _heads(
    hidden_size: int, vocabulary_size: int, embedding: Embedding | None, recognition: Recognition
) -> RecognitionHeads:
    tied = embedding if recognition.language_modeling else None
    return RecognitionHeads(hidden_size, vocabulary_size - CLASS_OFFSET, tied, bool(recognition.next_symbols))
