"""Recurrent models from their settings."""

from typing import assert_never

from torch import nn

from structattn.building.words import Words, spelled_embedding
from structattn.models import Embedding, SpelledEmbedding
from structattn.models.recurrent import OneHot, Recurrence, RecurrentLanguageModel, initialize_recurrent
from structattn.operators import RecurrentStack
from structattn.settings.embeddings import TableEmbedding
from structattn.settings.mechanisms import Nondeterministic, Stratified, Superposition
from structattn.settings.recurrent import ElmanSettings, LstmSettings, RecurrentStackSettings
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
            None if settings.stack is None else _stack(settings.stack),
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


def _stack(stack: RecurrentStackSettings) -> RecurrentStack:
    match stack:
        case Superposition():
            return RecurrentStack("superposition", stack.stack_embedding_size, pushed=stack.pushed_activation)
        case Stratified():
            return RecurrentStack("stratified", stack.stack_embedding_size, pushed=stack.pushed_activation)
        case Nondeterministic():
            return RecurrentStack(
                "nondeterministic",
                stack.stack_embedding_size,
                stack.num_states,
                stack.stack_alphabet_size,
                stack.pushed_activation,
                stack.window,
            )
    assert_never(stack)
