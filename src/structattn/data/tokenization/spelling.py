"""Words as sequences of character ids."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsInt

from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary, tokenizer_digest
from structattn.support.special_tokens import BOS, EOS

LONGEST = 256  # characters of a word that are read: no word of a language has more, and tables are as wide as one


@dataclass(frozen=True)
class Speller:
    """The characters of a language: a word is ``<bos> c1 .. cm <eos>``, which mark its beginning and its end.

    Args:
        characters: their numbering; ``<unk>`` stands for all others.
    """

    characters: Vocabulary

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the numbering."""
        return tokenizer_digest("character", self.characters)

    def spell(self, word: str) -> list[int]:
        """The numbers of a word's characters, 256 at most, between the two marks."""
        id_of, unknown = self.characters.id_of, self.characters.id_of[UNKNOWN_SYMBOL]
        return [BOS, *(id_of.get(character, unknown) for character in word[:LONGEST]), EOS]

    def word(self, ids: Iterable[SupportsInt]) -> str:
        """The word that is spelt so; marks and pads are left out."""
        return "".join(self.characters.visible(ids))


def speller_of(words: Mapping[str, int]) -> Speller:
    """The characters of counted words by falling count, equal counts by code point."""
    counts = Counter[str]()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return Speller(Vocabulary.of(sorted(counts, key=lambda character: (-counts[character], character)), unknown=True))
