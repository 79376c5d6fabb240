"""Words as characters: how a word is spelt in numbers, and which words of a batch are spelt."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsInt, TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary, tokenizer_digest
from structattn.support.special_tokens import BOS, EOS, PAD, UNK

Word = TypeVar("Word", bound=Hashable)


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

    def table(self, words: Iterable[str]) -> Int64[Tensor, "words characters"]:
        """The spelling of each word, a row each, with ``<pad>`` after the shorter ones."""
        return _table([self.spell(word) for word in words])


def speller_of(words: Mapping[str, int]) -> Speller:
    """The characters of counted words by falling count, equal counts by code point."""
    counts = Counter[str]()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return Speller(Vocabulary.of(sorted(counts, key=lambda character: (-counts[character], character)), unknown=True))


@dataclass(frozen=True)
class Spelt:
    """The words of one side of a batch that have no number, and a known spelling.

    Args:
        which: 0 where there is none; else the row of its spelling, counted from 1.
        spellings: each different word once: ``<bos> c1 .. cm <eos>``; then ``<pad>``.
    """

    which: Int64[Tensor, "batch time"]
    spellings: Int64[Tensor, "words characters"]

    def to(self, device: torch.device | str) -> "Spelt":
        """The same words on another device."""
        return Spelt(self.which.to(device), self.spellings.to(device))


def spelt(rows: Sequence[Iterable[tuple[int, Word]]], width: int, spelling: Callable[[Word], list[int]]) -> Spelt:
    """The spelt words of a batch, each different one once.

    Args:
        rows: for each row the places of such words, and what each is called.
        width: of the batch.
        spelling: from what a word is called to its spelling.
    """
    which, row_of = np.zeros((len(rows), width), dtype=np.int64), dict[Word, int]()
    for row, words in enumerate(rows):
        for place, word in words:
            which[row, place] = row_of.setdefault(word, len(row_of) + 1)
    return Spelt(torch.from_numpy(which), _table([spelling(word) for word in row_of]))


def spelt_lines(lines: Sequence[Sequence[str]], ids: Sequence[Sequence[int]], width: int, speller: Speller) -> Spelt:
    """The words of lines that have no number.

    Args:
        lines: words.
        ids: their numbers; ``<unk>`` where there is none.
        width: of the batch.
        speller: of the language.
    """
    rare = [
        [
            (place, word)
            for place, (word, number) in enumerate(zip(words, numbers, strict=True))
            if number == UNK and word != UNKNOWN_SYMBOL
        ]
        for words, numbers in zip(lines, ids, strict=True)
    ]
    return spelt(rare, width, speller.spell)


def _table(spellings: Sequence[Sequence[int]]) -> Int64[Tensor, "words characters"]:
    table = np.full((len(spellings), max(map(len, spellings), default=2)), PAD, dtype=np.int64)
    for row, ids in zip(table, spellings, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(table)
