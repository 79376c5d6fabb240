"""Models of words that are spelt, from their settings."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from structattn.building.layers import added_positions, build_embedding, dropout_rate
from structattn.data.batching.unknown_words import character_table
from structattn.data.folders import PreparedFolder
from structattn.data.folders.parallel_side import ParallelSide
from structattn.data.tokenization.vocabulary import Vocabulary
from structattn.data.tokenization.word_characters import WordCharacterTokenizer
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
from structattn.support.special_tokens import FIRST_SYMBOL


@dataclass(frozen=True)
class Words:
    """What a model needs to know of a vocabulary.

    Args:
        size: all ids.
        characters: the size of the vocabulary of characters; 0 where symbols are not words, or nobody knows how words
            without a number are spelt.
        spellings: makes the table of those of all symbols but the special ones, in the order of their ids; None with
            ``characters`` 0.
    """

    size: int
    characters: int = 0
    spellings: Callable[[], Int64[Tensor, "words characters"]] | None = None


def words_of_side(side: ParallelSide) -> Words:
    """The words of one side of parallel text."""
    return _words(side.vocabulary, side.character_tokenizer)


def words_of_text(prepared: PreparedFolder) -> Words:
    """The words of a text; their characters are those of the vocabulary."""
    vocabulary, level = prepared.vocabulary, prepared.header.tokenizer["level"]
    spelt = vocabulary.symbols[_first_word(vocabulary) :]
    return _words(vocabulary, WordCharacterTokenizer.from_counts(dict.fromkeys(spelt, 1)) if level == "word" else None)


def _words(vocabulary: Vocabulary, speller: WordCharacterTokenizer | None) -> Words:
    if speller is None:
        return Words(vocabulary.size)
    spelt = vocabulary.symbols[_first_word(vocabulary) :]
    return Words(vocabulary.size, speller.vocabulary.size, partial(character_table, speller, spelt))


def _first_word(vocabulary: Vocabulary) -> int:
    return FIRST_SYMBOL + vocabulary.has_unknown


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
