"""Tensors of character ids: the spelled words of a batch, and the spellings of a vocabulary."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from structattn.data.tokenization.spelling import Speller
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL
from structattn.support.special_tokens import PAD, UNK

Word = TypeVar("Word", bound=Hashable)


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


def spelling_table(speller: Speller, words: Iterable[str]) -> Int64[Tensor, "words characters"]:
    """Return the character ids of each word, one row per word, padded with ``<pad>``."""
    return _table([speller.spell(word) for word in words])


def _table(spellings: Sequence[Sequence[int]]) -> Int64[Tensor, "words characters"]:
    table = np.full((len(spellings), max(map(len, spellings), default=2)), PAD, dtype=np.int64)
    for row, ids in zip(table, spellings, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(table)
