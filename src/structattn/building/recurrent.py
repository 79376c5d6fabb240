"""Recurrent models from their settings."""

from torch import nn

from structattn.building.builders import build_recurrent_stack
from structattn.building.words import Words, spelled_embedding
from structattn.models import Embedding, SpelledEmbedding
from structattn.models.recurrent import OneHot, Recurrence, RecurrentLanguageModel, initialize_recurrent
from structattn.settings.embeddings import TableEmbedding
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.support.special_tokens import CLASS_OFFSET


def build_recurrent(settings: LstmSettings | ElmanSettings, words: Words) -> RecurrentLanguageModel:
    """A recurrent language model with initial weights.

    Raises:
        SettingsError: words are to be spelt, and the data do not say how.
    """
    size = settings.embedding_size
    model = RecurrentLanguageModel(
        OneHot(words.size) if size is None else _embedding(settings, size, words),
        Recurrence(
            words.size - 3 if size is None else size,
            settings.hidden_size,
            "lstm" if isinstance(settings, LstmSettings) else settings.activation,
            None if settings.stack is None else build_recurrent_stack(settings.stack),
        ),
        nn.Linear(settings.hidden_size, words.size - CLASS_OFFSET),
    )
    initialize_recurrent(model, settings.init_scale)
    return model


def _embedding(settings: LstmSettings | ElmanSettings, size: int, words: Words) -> Embedding | SpelledEmbedding:
    kind = settings.embedding
    if isinstance(kind, TableEmbedding):
        return Embedding(words.size, size)
    return spelled_embedding(kind, words, size, "model.embedding")
