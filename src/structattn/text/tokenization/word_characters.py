"""Character sequences of words, for models that compose or generate words character by character."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsInt

from structattn.support.special_tokens import BOS, EOS
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary, tokenizer_digest

MAX_CHARACTERS = 256
"""Longer words are truncated, which bounds the width of tables of words; no natural language has longer ones."""


@dataclass(frozen=True)
class WordCharacterTokenizer:
    """Encodes a word as ``<bos> c1 .. cm <eos>``, the ids of its characters.

    Args:
        vocabulary: the characters; it has ``<unk>`` for all others.
    """

    vocabulary: Vocabulary

    @classmethod
    def from_counts(cls, words: Mapping[str, int]) -> "WordCharacterTokenizer":
        """Take the characters of counted words by descending count, ties by code point."""
        counts = Counter[str]()
        for word, count in words.items():
            for character in word:
                counts[character] += count
        ranked = sorted(counts, key=lambda character: (-counts[character], character))
        return cls(Vocabulary.from_symbols(ranked, unknown=True))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the vocabulary."""
        return tokenizer_digest("character", self.vocabulary)

    def encode(self, word: str) -> list[int]:
        """Return the ids of a word's first 256 characters, between ``<bos>`` and ``<eos>``."""
        id_of, unknown = self.vocabulary.id_of, self.vocabulary.id_of[UNKNOWN_SYMBOL]
        return [BOS, *(id_of.get(character, unknown) for character in word[:MAX_CHARACTERS]), EOS]

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to a word, without control symbols."""
        return "".join(self.vocabulary.symbols_of(ids))
