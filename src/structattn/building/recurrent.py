"""Build recurrent models."""

from torch import nn

from structattn.building.builders import build_recurrent_stack
from structattn.building.embeddings import VocabularySpec, spelled_embedding
from structattn.models import Embedding, SpelledEmbedding
from structattn.models.recurrent import OneHot, Recurrence, RecurrentLanguageModel, initialize_recurrent
from structattn.settings.embeddings import TableEmbedding
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.support.special_tokens import CLASS_OFFSET, FIRST_SYMBOL


def build_recurrent(settings: LstmSettings | ElmanSettings, vocabulary: VocabularySpec) -> RecurrentLanguageModel:
    """Build a recurrent language model with initial weights.

    Raises:
        SettingsError: the embeddings need the characters of words, and ``vocabulary`` has none.
    """
    size = settings.embedding_size
    model = RecurrentLanguageModel(
        OneHot(vocabulary.size) if size is None else _embedding(settings, size, vocabulary),
        Recurrence(
            vocabulary.size - FIRST_SYMBOL if size is None else size,
            settings.hidden_size,
            "lstm" if isinstance(settings, LstmSettings) else settings.activation,
            None if settings.stack is None else build_recurrent_stack(settings.stack),
        ),
        nn.Linear(settings.hidden_size, vocabulary.size - CLASS_OFFSET),
    )
    initialize_recurrent(model, settings.init_scale, settings.weight_init)
    return model


def _embedding(
    settings: LstmSettings | ElmanSettings, size: int, vocabulary: VocabularySpec
) -> Embedding | SpelledEmbedding:
    kind = settings.embedding
    if isinstance(kind, TableEmbedding):
        return Embedding(vocabulary.size, size)
    return spelled_embedding(kind, vocabulary, size, "model.embedding")
