"""Noise of training batches: BPE-dropout and unknown words, reproducible after a resume."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator
from structattn.support.shapes import Int32, Int64
from structattn.support.special_tokens import PAD, UNK
from structattn.text.folders.parallel import ParallelSides
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, WordCharacterTokenizer


@dataclass(frozen=True)
class SubwordDropout:
    """Drops merges at random (Provilkov et al. 2020), as a pure function of (seed, epoch, pair).

    For training only: text that is translated or scored is segmented without dropout. Cost: about 0.5 ms for a pair of
    27 words, both sides together.

    Args:
        sides: the tokenizers of a prepared folder of level ``bpe``.
        source: the probability of dropping each possible merge of the source.
        target: the same for the target.
        seed: determines the dropped merges, together with the epoch and the index of the pair.
        max_length: a line that dropout would make longer, in tokens, stays unchanged; None for no limit.

    Raises:
        UsageError: a rate is outside [0, 1], or the tokenizer does not support dropout.
    """

    sides: ParallelSides
    source: float
    target: float
    seed: int
    max_length: int | None = None

    def __post_init__(self) -> None:
        for side, rate in ((self.sides.source, self.source), (self.sides.target, self.target)):
            if not 0.0 <= rate <= 1.0:
                raise UsageError(f"the rate of subword dropout is {rate}; expected 0 to 1")
            if rate:
                _subword_tokenizer(side).model.pretokens_of(())

    def apply(
        self, source: NDArray[Any], target: NDArray[Any], *, epoch: int, index: int
    ) -> tuple[Int32[np.ndarray, " source"], Int32[np.ndarray, " target"]]:
        """Resegment a pair of ids."""
        return (
            self._resegment(self.sides.source, source, self.source, "source", epoch, index),
            self._resegment(self.sides.target, target, self.target, "target", epoch, index),
        )

    def _resegment(
        self, side: TextTokenizer, ids: NDArray[Any], rate: float, name: str, epoch: int, index: int
    ) -> Int32[np.ndarray, " length"]:
        if rate == 0.0:
            return ids
        generator = numpy_generator(self.seed, "subwords", name, epoch, index)
        tokens = _subword_tokenizer(side).resegment(ids, rate, generator)
        return tokens if self.max_length is None or len(tokens) <= self.max_length else ids


def _subword_tokenizer(side: TextTokenizer) -> SubwordTokenizer:
    if not isinstance(side.tokenizer, SubwordTokenizer):
        raise UsageError("subword dropout needs level bpe; the tokens of this data are not subwords")
    return side.tokenizer


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
    """Collect the out-of-vocabulary words of lines."""
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
