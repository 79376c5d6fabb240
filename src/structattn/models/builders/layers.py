"""Build the blocks, embeddings and output layers of models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import torch
from torch import Tensor, nn

from structattn import models  # of which those that few models have are imported when they are first used
from structattn.attention import CrossAttentionLayer
from structattn.models import (
    BidirectionalComposition,
    Block,
    Composition,
    Embedding,
    FeedForward,
    ForwardComposition,
    Layers,
    LoopedLayers,
    SpelledEmbedding,
    SpellingDecoder,
)
from structattn.models.builders.mechanisms import (
    added_positions,
    build_attention,
    build_cross_attention,
    build_stack,
    dropout_rate,
    stack_trans,
)
from structattn.settings.embeddings import (
    C2wEmbedding,
    CharacterLstmEmbedding,
    SpellingSettings,
    TableEmbedding,
    WordEmbedding,
)
from structattn.settings.layers import CrossAttention, Layer
from structattn.settings.transformer import LayeredSettings, TransformerSettings
from structattn.support.errors import SettingsError
from structattn.support.shapes import Int64
from structattn.support.special_tokens import CLASS_OFFSET


def build_layers(
    settings: TransformerSettings, layers: Sequence[Layer], causal: bool, cross: Sequence[CrossAttention] | None = None
) -> Layers:
    """Return the blocks of one side of a model; ``cross`` has one mechanism per layer, None: no cross-attention."""
    cross_layers: list[CrossAttentionLayer | None]
    cross_layers = [None] * len(layers) if cross is None else [build_cross_attention(settings, each) for each in cross]
    blocks = [_block(settings, layer, causal, other) for layer, other in zip(layers, cross_layers, strict=True)]
    return Layers(blocks, nn.LayerNorm(settings.d_model) if settings.norm == "pre" else None)


def build_model_layers(settings: LayeredSettings, causal: bool) -> Layers | LoopedLayers:
    """Return the blocks of a language model, looped or with a stack over depth if the settings say so."""
    layers, loops = build_layers(settings, settings.layers, causal), settings.loops
    if settings.depth_stack is not None:
        stacks: list[Any] = [stack_trans(settings.d_model, settings.depth_stack) for _ in settings.layers]
        return models.DepthStackLayers(list(layers.blocks), stacks, layers.final)
    if loops is None:
        return layers
    blocks, end = list(layers.blocks), len(layers.blocks) - loops.coda
    return LoopedLayers(
        Layers(blocks[: loops.prelude]),
        Layers(blocks[loops.prelude : end]),
        Layers(blocks[end:], layers.final),
        loops.count,
        loops.factor,
        loops.maximum,
        loops.injected,
        causal,
    )


def build_embedding(
    settings: TransformerSettings,
    vocabulary_size: int,
    whole: bool,
    num_masks: int = 0,
    with_positions: bool = True,
    first_id: int = CLASS_OFFSET,
) -> Embedding:
    """Return embeddings, with the positions that are added to them if ``with_positions``; see ``Embedding``."""
    positions = added_positions(settings) if with_positions else None
    rate = dropout_rate(settings, settings.embedding_dropout)
    return Embedding(vocabulary_size, settings.d_model, positions, rate, whole, num_masks, first_id=first_id)


def build_output(settings: TransformerSettings, vocabulary_size: int, tied: bool) -> nn.Linear | None:
    """Return the output layer; None with tied embeddings."""
    return None if tied else nn.Linear(settings.d_model, vocabulary_size - CLASS_OFFSET)


def _block(settings: TransformerSettings, layer: Layer, causal: bool, cross: CrossAttentionLayer | None) -> Block:
    d_ff = settings.d_ff if layer.feedforward else None
    rate = dropout_rate(settings, settings.hidden_dropout)
    return Block(
        settings.d_model,
        build_attention(settings, layer, causal),
        cross,
        None if d_ff is None else FeedForward(settings.d_model, d_ff, rate),
        None if layer.stack is None else build_stack(settings.d_model, layer.stack),
        settings.norm,
        settings.dropout,
    )


@dataclass(frozen=True)
class VocabularySpec:
    """The size of a vocabulary, and the characters of its words.

    Args:
        size: the number of ids, including special tokens.
        num_characters: the size of the character vocabulary; 0 if the data have no characters of words.
        spellings: returns the character ids of all words except special tokens, in the order of their ids; None if
            ``num_characters`` is 0.
    """

    size: int
    num_characters: int = 0
    spellings: Callable[[], Int64[Tensor, "words characters"]] | None = None


def build_word_embedding(
    settings: TransformerSettings, kind: WordEmbedding, vocabulary: VocabularySpec, whole: bool, path: str
) -> Embedding | SpelledEmbedding:
    """Return word embeddings, by a table or by characters.

    Raises:
        SettingsError: the embeddings need the characters of words, and the data have none.
    """
    if isinstance(kind, TableEmbedding):
        return build_embedding(settings, vocabulary.size, whole)
    rate = dropout_rate(settings, settings.embedding_dropout)
    return spelled_embedding(kind, vocabulary, settings.d_model, path, added_positions(settings), rate)


def spelled_embedding(
    kind: C2wEmbedding | CharacterLstmEmbedding,
    vocabulary: VocabularySpec,
    d_model: int,
    path: str,
    positions: nn.Module | None = None,
    dropout: float = 0.0,
) -> SpelledEmbedding:
    """Return embeddings of words by their characters.

    Raises:
        SettingsError: the data have no characters of words.
    """
    _require_characters(vocabulary, path)
    none = torch.zeros(0, 2, dtype=torch.int64, device="cpu")
    spellings = vocabulary.spellings() if vocabulary.spellings is not None and kind.words == "all" else none
    composition = _composition(kind, vocabulary.num_characters, d_model)
    return SpelledEmbedding(vocabulary.size, d_model, composition, spellings, positions, dropout)


def build_spelling(settings: SpellingSettings, d_model: int, vocabulary: VocabularySpec, path: str) -> SpellingDecoder:
    """Return the decoder that spells unknown words.

    Raises:
        SettingsError: the data have no characters of words, or the hidden size does not fit ``settings.path``.
    """
    _require_characters(vocabulary, path)
    hidden_size = d_model if settings.hidden_size is None else settings.hidden_size
    if settings.path == "same" and hidden_size != d_model:
        raise SettingsError(f"{path}.hidden_size is {hidden_size}; expected d_model {d_model} with path: same")
    return SpellingDecoder(
        vocabulary.num_characters,
        d_model,
        settings.character_embedding_size,
        hidden_size,
        settings.num_layers,
        settings.path == "separate",
    )


def _require_characters(vocabulary: VocabularySpec, path: str) -> None:
    if vocabulary.spellings is None:
        raise SettingsError(f"{path}: the data have no characters of words; prepare them again with --level word")


def _composition(kind: C2wEmbedding | CharacterLstmEmbedding, num_characters: int, d_model: int) -> Composition:
    match kind:
        case C2wEmbedding():
            return BidirectionalComposition(
                num_characters, d_model, kind.character_embedding_size, kind.hidden_size, kind.coupled
            )
        case CharacterLstmEmbedding():
            return ForwardComposition(num_characters, d_model, kind.character_embedding_size, kind.num_layers)
    assert_never(kind)
