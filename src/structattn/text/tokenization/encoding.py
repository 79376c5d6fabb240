"""Encoding of many lines at once; equal to ``Tokenizer.encode`` on each."""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

import numpy as np

from structattn.support.shapes import Int32, Int64
from structattn.support.special_tokens import UNK
from structattn.text.tokenization.splitting import SplitText
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.tokenizers import SymbolTokenizer, Tokenizer

_SYMBOLS_AT_ONCE: Final = 1 << 18
_MAX_REMEMBERED: Final = 1 << 18  # words, of about 300 bytes each


class EncodedLines(NamedTuple):
    """The ids of consecutive lines, one line after the other, and the number of tokens of each."""

    tokens: Int32[np.ndarray, " tokens"]
    lengths: Int64[np.ndarray, " lines"]


class BulkEncoder:
    """Encodes split lines by looking up each distinct symbol once; remembers the subwords of words.

    Args:
        tokenizer: of symbols or of subwords; its unit must be that of the split lines: words, for subwords.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._remembered: dict[str, list[int]] = {}

    def __call__(self, split: SplitText) -> EncodedLines:
        """Return the ids of the lines. Symbols outside the vocabulary become ``<unk>``."""
        if isinstance(self._tokenizer, SymbolTokenizer):
            return EncodedLines(_flat(self._tokenizer.ids_of(split.symbols))[split.indices], split.lengths)
        ids = self._subwords_of(split.symbols)
        return _encode_ragged(ids, split)

    def _subwords_of(self, words: Sequence[str]) -> list[list[int]]:
        assert isinstance(self._tokenizer, SubwordTokenizer)
        remembered = self._remembered
        new = [word for word in words if word not in remembered]
        encoded = dict(zip(new, self._tokenizer.encode_words(new), strict=True))
        remembered.update(islice(encoded.items(), max(0, _MAX_REMEMBERED - len(remembered))))
        return [remembered[word] if word in remembered else encoded[word] for word in words]


def _flat(ids: Iterable[int]) -> Int32[np.ndarray, " tokens"]:
    return np.fromiter(ids, np.int32)


def _encode_ragged(ids: Sequence[Sequence[int]], split: SplitText) -> EncodedLines:
    """Replace symbol i of the text by ``ids[i]``, some symbols at once."""
    flat = _flat(chain.from_iterable(ids))
    counts = np.fromiter(map(len, ids), np.int64, len(ids))
    starts = np.cumsum(counts) - counts
    parts, ends_of_lines, done = [np.zeros(0, np.int32)], np.zeros(len(split.lengths), np.int64), 0
    symbols_of_lines = np.cumsum(split.lengths)
    for first in range(0, len(split.indices), _SYMBOLS_AT_ONCE):
        some = split.indices[first : first + _SYMBOLS_AT_ONCE]
        ends = np.cumsum(counts[some])
        offsets = np.repeat(starts[some] - ends + counts[some], counts[some])
        parts.append(flat[np.arange(len(offsets)) + offsets])
        lines = slice(*np.searchsorted(symbols_of_lines, (first, first + len(some)), "right"))
        ends_of_lines[lines] = done + ends[symbols_of_lines[lines] - first - 1]
        done += len(offsets)
    return EncodedLines(np.concatenate(parts), np.diff(ends_of_lines, prepend=0))


def num_unknown(lines: EncodedLines) -> int:
    """Return how many tokens are id 3, which is ``<unk>`` if the vocabulary has it."""
    return int(np.count_nonzero(lines.tokens == UNK))
