"""Word embeddings and spelling decoders from their settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from structattn.building.common import added_positions, dropout_rate
from structattn.building.layers import build_embedding
from structattn.models import (
    BidirectionalComposition,
    Composition,
    Embedding,
    ForwardComposition,
    SpelledEmbedding,
    SpellingDecoder,
)
from structattn.settings.embeddings import (
    C2wEmbedding,
    CharacterLstmEmbedding,
    SpellingSettings,
    TableEmbedding,
    WordEmbedding,
)
from structattn.settings.transformer import TransformerSettings
from structattn.support.errors import SettingsError


@dataclass(frozen=True)
class Words:
    """The sizes of a vocabulary, and the characters of its words.

    Args:
        size: number of ids, special tokens included.
        characters: size of the character vocabulary; 0 where the symbols are not words or their characters are unknown.
        spellings: returns the character ids of all symbols but the special tokens, in the order of their ids; None if
            ``characters`` is 0.
    """

    size: int
    characters: int = 0
    spellings: Callable[[], Int64[Tensor, "words characters"]] | None = None


def build_word_embedding(
    settings: TransformerSettings, kind: WordEmbedding, words: Words, whole: bool, place: str
) -> Embedding | SpelledEmbedding:
    """The embedding of words, by a table or by their characters.

    Args:
        settings: of the model.
        kind: which.
        words: the vocabulary.
        whole: of a table, see ``Embedding``.
        place: the path of ``kind`` in the settings, for messages.

    Raises:
        SettingsError: words are to be spelt, and the data do not say how.
    """
    if isinstance(kind, TableEmbedding):
        return build_embedding(settings, words.size, whole)
    rate = dropout_rate(settings, settings.embedding_dropout)
    return spelled_embedding(kind, words, settings.d_model, place, added_positions(settings), rate)


def spelled_embedding(
    kind: C2wEmbedding | CharacterLstmEmbedding,
    words: Words,
    d_model: int,
    place: str,
    positions: nn.Module | None = None,
    dropout: float = 0.0,
) -> SpelledEmbedding:
    """The embedding of words by their characters; what is not described here is as in ``SpelledEmbedding``.

    Args:
        kind: how, and of which words.
        words: the vocabulary.
        d_model: of the vectors.
        place: the path of ``kind`` in the settings, for messages.
        positions: see there.
        dropout: see there.

    Raises:
        SettingsError: the data do not say how words are spelt.
    """
    _require_characters(words, place)
    none = torch.zeros(0, 2, dtype=torch.int64)
    spelt = words.spellings() if words.spellings is not None and kind.words == "all" else none
    composition = _composition(kind, words.characters, d_model)
    return SpelledEmbedding(words.size, d_model, composition, spelt, positions, dropout)


def build_spelling(settings: SpellingSettings, d_model: int, words: Words, place: str) -> SpellingDecoder:
    """What spells unknown words.

    Raises:
        SettingsError: the data do not say how words are spelt, or the path does not fit the units.
    """
    _require_characters(words, place)
    hidden_size = d_model if settings.hidden_size is None else settings.hidden_size
    if settings.path == "same" and hidden_size != d_model:
        raise SettingsError(
            f"{place}.hidden_size: the path 'same' needs as many as the model is wide, {d_model}; got {hidden_size}"
        )
    return SpellingDecoder(
        words.characters,
        d_model,
        settings.character_embedding_size,
        hidden_size,
        settings.num_layers,
        settings.path == "separate",
    )


def _require_characters(words: Words, place: str) -> None:
    if words.spellings is None:
        raise SettingsError(
            f"{place}: the data do not say how words are spelt; prepare them with --level word, and anew if an earlier "
            "release did"
        )


def _composition(kind: C2wEmbedding | CharacterLstmEmbedding, characters: int, d_model: int) -> Composition:
    match kind:
        case C2wEmbedding():
            return BidirectionalComposition(
                characters, d_model, kind.character_embedding_size, kind.hidden_size, kind.coupled
            )
        case CharacterLstmEmbedding():
            return ForwardComposition(characters, d_model, kind.character_embedding_size, kind.num_layers)
    assert_never(kind)
