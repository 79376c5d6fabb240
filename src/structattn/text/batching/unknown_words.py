"""Tensors of characters: the out-of-vocabulary words of a batch, and tables of words."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from structattn.support.special_tokens import PAD, UNK
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL
from structattn.text.tokenization.word_characters import WordCharacterTokenizer

Word = TypeVar("Word", bound=Hashable)


@dataclass(frozen=True)
class UnknownWords:
    """The words of one side of a batch that are ``<unk>`` and whose characters are known.

    Args:
        index: 0 where there is no such word; otherwise the row of ``characters``, counted from 1.
        characters: each distinct word once: ``<bos> c1 .. cm <eos>``, then ``<pad>``.
    """

    index: Int64[Tensor, "batch time"]
    characters: Int64[Tensor, "words characters"]

    def to(self, device: torch.device | str) -> "UnknownWords":
        """Move the tensors to a device."""
        return UnknownWords(self.index.to(device), self.characters.to(device))


def unknown_words(
    rows: Sequence[Iterable[tuple[int, Word]]], width: int, encode: Callable[[Word], list[int]]
) -> UnknownWords:
    """Collect the unknown words of a batch, each distinct word once.

    Args:
        rows: for each row of the batch, the position and the key of each unknown word.
        width: the width of the batch.
        encode: maps the key of a word to its character ids.
    """
    index, row_of = np.zeros((len(rows), width), dtype=np.int64), dict[Word, int]()
    for row, words in enumerate(rows):
        for position, word in words:
            index[row, position] = row_of.setdefault(word, len(row_of) + 1)
    return UnknownWords(torch.from_numpy(index), _stack([encode(word) for word in row_of]))


def unknown_words_of_lines(
    lines: Sequence[Sequence[str]], ids: Sequence[Sequence[int]], width: int, tokenizer: WordCharacterTokenizer
) -> UnknownWords:
    """Collect the out-of-vocabulary words of lines.

    Args:
        lines: the words of each line.
        ids: their ids; ``<unk>`` for out-of-vocabulary words.
        width: the width of the batch.
        tokenizer: encodes a word as characters.
    """
    rows = [
        [
            (position, word)
            for position, (word, token) in enumerate(zip(words, tokens, strict=True))
            if token == UNK and word != UNKNOWN_SYMBOL
        ]
        for words, tokens in zip(lines, ids, strict=True)
    ]
    return unknown_words(rows, width, tokenizer.encode)


def character_table(tokenizer: WordCharacterTokenizer, words: Iterable[str]) -> Int64[Tensor, "words characters"]:
    """Encode each word as a row ``<bos> c1 .. cm <eos>``, with ``<pad>`` after the shorter ones."""
    return _stack([tokenizer.encode(word) for word in words])


def _stack(sequences: Sequence[Sequence[int]]) -> Int64[Tensor, "words characters"]:
    table = np.full((len(sequences), max(map(len, sequences), default=2)), PAD, dtype=np.int64)
    for row, ids in zip(table, sequences, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(table)
