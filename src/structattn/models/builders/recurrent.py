"""Build recurrent models and their stacks."""

from torch import nn

from structattn.models import Embedding, SpelledEmbedding
from structattn.models.builders.layers import VocabularySpec, spelled_embedding
from structattn.models.recurrent.deep import DeepRecurrence
from structattn.models.recurrent.initialization import initialize_recurrent
from structattn.models.recurrent.language_model import RecurrentLanguageModel
from structattn.models.recurrent.recurrence import OneHot, Recurrence
from structattn.operators import RecurrentStack
from structattn.settings.base import Settings
from structattn.settings.embeddings import TableEmbedding
from structattn.settings.mechanisms import mechanism_of
from structattn.settings.recurrent import ElmanSettings, LstmSettings
from structattn.settings.stacks import Nondeterministic, RecurrentSuperposition, Stratified
from structattn.support.special_tokens import CLASS_OFFSET, FIRST_SYMBOL


def build_recurrent(settings: LstmSettings | ElmanSettings, vocabulary: VocabularySpec) -> RecurrentLanguageModel:
    """Build a recurrent language model with initial weights.

    Raises:
        SettingsError: the embeddings need the characters of words, and ``vocabulary`` has none.
    """
    output_size = hidden_size_of(settings)
    embedding, input_size = _embedding(settings, vocabulary, output_size)
    model = RecurrentLanguageModel(
        embedding,
        build_recurrence(settings, input_size),
        None if settings.tied_embeddings else nn.Linear(output_size, vocabulary.size - CLASS_OFFSET),
    )
    initialize_recurrent(model, settings.init_scale, settings.weight_init)
    return model


def hidden_size_of(settings: LstmSettings | ElmanSettings) -> int:
    """Return the size of what a network predicts from: its hidden state, and the stack's reading where it is joined."""
    if settings.stack is None or not settings.join_reading:
        return settings.hidden_size
    return settings.hidden_size + build_recurrent_stack(settings.stack).reading_size


def build_recurrence(settings: LstmSettings | ElmanSettings, input_size: int) -> Recurrence | DeepRecurrence:
    """Return the network of a recurrent model, with its stack."""
    stack = None if settings.stack is None else build_recurrent_stack(settings.stack)
    cell = "lstm" if isinstance(settings, LstmSettings) else settings.activation
    if not settings.is_deep:
        return Recurrence(input_size, settings.hidden_size, cell, stack)
    return DeepRecurrence(
        input_size,
        settings.hidden_size,
        settings.num_layers,
        cell,
        stack,
        learned_start=settings.learned_initial_state,
        joined=settings.join_reading,
        dropout=settings.dropout,
    )


def _embedding(
    settings: LstmSettings | ElmanSettings, vocabulary: VocabularySpec, output_size: int
) -> tuple[OneHot | Embedding | SpelledEmbedding, int]:
    """Return the embedding and its size."""
    size, kind = settings.embedding_size, settings.embedding
    if settings.tied_embeddings:
        return Embedding(vocabulary.size, output_size, scaled=False), output_size
    if size is None:
        return OneHot(vocabulary.size), vocabulary.size - FIRST_SYMBOL
    if isinstance(kind, TableEmbedding):
        return Embedding(vocabulary.size, size), size
    return spelled_embedding(kind, vocabulary, size, "model.embedding"), size


def build_recurrent_stack(settings: Settings) -> RecurrentStack:
    """Return the stack of a recurrent network."""
    use = mechanism_of(settings).recurrent_stack
    assert use is not None
    stack: RecurrentStack = use.build(settings)
    return stack


def superposition(stack: RecurrentSuperposition) -> RecurrentStack:
    """Return a superposition stack."""
    pushed, depth = stack.pushed_activation, stack.depth
    return RecurrentStack("superposition", stack.stack_embedding_size, pushed=pushed, depth=depth)


def stratified(stack: Stratified) -> RecurrentStack:
    """Return a stratified stack."""
    return RecurrentStack("stratified", stack.stack_embedding_size, pushed=stack.pushed_activation)


def nondeterministic(stack: Nondeterministic) -> RecurrentStack:
    """Return a nondeterministic stack."""
    sizes = stack.stack_embedding_size, stack.num_states, stack.stack_alphabet_size
    return RecurrentStack("nondeterministic", *sizes, stack.pushed_activation, stack.window)
