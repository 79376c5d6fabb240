"""Recurrent models from their settings."""

from typing import assert_never

from torch import nn

from structattn.models import Embedding
from structattn.models.embedding import NEVER_PREDICTED
from structattn.models.recurrent import OneHot, Recurrence, RecurrentLanguageModel, initialize_recurrent
from structattn.operators import RecurrentStack
from structattn.settings.mechanisms import Nondeterministic, Stratified, Superposition
from structattn.settings.recurrent import ElmanSettings, LstmSettings, RecurrentStackSettings


def build_recurrent(settings: LstmSettings | ElmanSettings, vocabulary_size: int) -> RecurrentLanguageModel:
    """A recurrent language model with initial weights."""
    size = settings.embedding
    embedding = OneHot(vocabulary_size) if size is None else Embedding(vocabulary_size, size)
    input_size = vocabulary_size - 3 if size is None else size
    model = RecurrentLanguageModel(
        embedding,
        Recurrence(
            input_size,
            settings.units,
            "lstm" if isinstance(settings, LstmSettings) else settings.activation,
            None if settings.stack is None else _stack(settings.stack),
        ),
        nn.Linear(settings.units, vocabulary_size - NEVER_PREDICTED),
    )
    initialize_recurrent(model, settings.initial_scale)
    return model


def _stack(stack: RecurrentStackSettings) -> RecurrentStack:
    match stack:
        case Superposition():
            return RecurrentStack("superposition", stack.vector, pushed=stack.pushed_activation)
        case Stratified():
            return RecurrentStack("stratified", stack.vector, pushed=stack.pushed_activation)
        case Nondeterministic():
            return RecurrentStack(
                "nondeterministic", stack.vector, stack.states, stack.symbols, stack.pushed_activation, stack.window
            )
    assert_never(stack)
