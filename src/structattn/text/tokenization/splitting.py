"""Splitting of many lines at once; equal to ``split_line`` on each. And the part of a line that a token is in."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from os.path import commonprefix
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from structattn.support.errors import quoted
from structattn.support.shapes import Int64
from structattn.text.tokenization.tokenizers import BYTE_SYMBOLS

_BLOCK = 1 << 18  # characters
_SEPARATOR = re.compile(r"[ \t\n]")
_LINE_FEED = 10
_NO_SPACES = str.maketrans("", "", " \t")
_NUM_CODE_POINTS = 0x110000


@dataclass(frozen=True)
class SplitText:
    """Lines split into symbols; the symbols of all lines are ``symbols[i]`` for i in ``indices``.

    Args:
        symbols: distinct symbols, at level ``byte`` all of them.
        indices: an index for each symbol of the text, of the smallest integer type that holds them.
        lengths: the number of symbols of each line.
    """

    symbols: Sequence[str]
    indices: NDArray[np.integer]
    lengths: Int64[np.ndarray, " lines"]

    def counts(self) -> Int64[np.ndarray, " symbols"]:
        """Return how often each of ``symbols`` occurs."""
        return np.bincount(self.indices, minlength=len(self.symbols))


def split_text(level: str, text: str) -> SplitText:
    """Split lines, each with a line feed at its end, into symbols.

    Cost: linear; words take about 0.2 µs each, characters and bytes a few ns. Memory: that of the result, and some tens
    of MB.
    """
    return {"word": _split_words, "character": _split_characters, "byte": _split_bytes}[level](text)


def _split_words(text: str) -> SplitText:
    index_of = defaultdict[str, int](count(2).__next__, {"\n": 0, "": 1})  # a new word gets the next index
    parts, lengths = list[NDArray[np.integer]](), _Lengths()
    for block in _blocks(text, _SEPARATOR):
        tokens = block.replace("\t", " ").replace("\n", " \n ").split(" ")
        indices = np.fromiter(map(index_of.__getitem__, tokens), np.int32, len(tokens))
        is_word = indices > 1
        parts.append(indices[is_word] - 2)
        lengths.add(is_word, indices == 0)
    return _split_text(list(index_of)[2:], parts, lengths)


def _split_characters(text: str) -> SplitText:
    occurs = np.zeros(_NUM_CODE_POINTS, dtype=bool)
    for block in _blocks(text):
        occurs[_codes(block)] = True
    occurs[_LINE_FEED] = False
    distinct = np.flatnonzero(occurs)
    index_of = np.empty(_NUM_CODE_POINTS, dtype=np.min_scalar_type(max(0, len(distinct) - 1)))
    index_of[distinct] = np.arange(len(distinct))
    parts, lengths = list[NDArray[np.integer]](), _Lengths()
    for block in _blocks(text):
        codes = _codes(block)
        is_character = codes != _LINE_FEED
        parts.append(index_of[codes[is_character]])
        lengths.add(is_character, ~is_character)
    return _split_text([chr(code) for code in distinct.tolist()], parts, lengths)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def _split_bytes(text: str) -> SplitText:
    parts, lengths = list[NDArray[np.integer]](), _Lengths()
    for block in _blocks(text):
        values = np.frombuffer(block.encode(), np.uint8)
        is_symbol = values != _LINE_FEED
        parts.append(values[is_symbol])
        lengths.add(is_symbol, ~is_symbol)
    return _split_text(BYTE_SYMBOLS, parts, lengths)


def _blocks(text: str, cut: re.Pattern[str] | None = None) -> Iterator[str]:
    """Yield a text in blocks of some hundred thousand characters, which end where ``cut`` matches if it is given."""
    start = 0
    while start < len(text):
        end = start + _BLOCK
        if cut is not None and end < len(text):
            place = cut.search(text, end - 1)
            end = len(text) if place is None else place.end()
        yield text[start:end]
        start = end


class _Lengths:
    """Counts the symbols of each line of a text that comes in blocks."""

    def __init__(self) -> None:
        self._of_blocks, self._open = [np.zeros(0, np.int64)], 0

    def add(self, is_symbol: NDArray[np.bool_], is_end: NDArray[np.bool_]) -> None:
        """Count a block, given which of its positions are symbols and which are ends of lines."""
        ends = np.cumsum(is_symbol)[is_end]
        lengths = np.diff(ends, prepend=0)
        lengths[:1] += self._open
        self._of_blocks.append(lengths)
        total = int(np.count_nonzero(is_symbol))
        self._open = total - int(ends[-1]) if len(ends) else self._open + total

    def of_lines(self) -> Int64[np.ndarray, " lines"]:
        """Return the number of symbols of each line."""
        return np.concatenate(self._of_blocks)


def _split_text(symbols: Sequence[str], parts: Sequence[NDArray[np.integer]], lengths: _Lengths) -> SplitText:
    smallest = np.min_scalar_type(max(0, len(symbols) - 1))
    indices = np.concatenate([np.zeros(0, smallest), *(part.astype(smallest, copy=False) for part in parts)])
    return SplitText(symbols, indices, lengths.of_lines())


@dataclass(frozen=True)
class TextSize:
    """The size of lines of text, without their line feeds; bytes are those of UTF-8."""

    words: int = 0
    characters: int = 0
    bytes: int = 0

    def __add__(self, other: "TextSize") -> "TextSize":
        return TextSize(self.words + other.words, self.characters + other.characters, self.bytes + other.bytes)


_SEPARATES = np.isin(np.arange(256), [ord(" "), ord("\t"), _LINE_FEED])


def text_size(text: str) -> TextSize:
    """Return the size of lines, each followed by a line feed."""
    words = num_bytes = 0
    in_word = False
    for block in _blocks(text):
        values = np.frombuffer(block.encode(), np.uint8)
        separates = _SEPARATES[values]
        words += int(np.count_nonzero(separates[1:] & ~separates[:-1])) + (in_word and bool(separates[0]))
        in_word = not separates[-1]
        num_bytes += len(values)
    line_feeds = text.count("\n")
    return TextSize(words, len(text) - line_feeds, num_bytes - line_feeds)


class Decoder(Protocol):
    """A tokenizer, with or without normalization."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to a line."""


def parts_of_tokens(decoder: Decoder, ids: Sequence[int], parts: Sequence[str]) -> list[int]:
    """Return the index of the part in which each token of a line begins.

    A token begins with its first character other than a space or tab, or, if it has none, with the next one. So a
    space, and a token that crosses the boundary of two parts, count for one part only, whatever the tokenizer.
    Without parts, the index is -1.

    Args:
        decoder: decodes the ids.
        ids: of the line.
        parts: the line as it is decoded, cut into parts, some of them perhaps empty; spaces and tabs do not count.

    Cost: O(n²) for n tokens, all of whose beginnings are decoded.

    Raises:
        ValueError: the parts together are not the line.
    """
    ends = list(accumulate(len(_without_spaces(part)) for part in parts))
    *beginnings, whole = (_without_spaces(decoder.decode(ids[:count])) for count in range(len(ids) + 1))
    if len(whole) != (ends[-1] if ends else 0):
        raise ValueError(f"the line {quoted(decoder.decode(ids))} does not consist of {quoted(list(parts), 120)}")
    starts = (len(commonprefix([each, whole])) for each in beginnings)  # noqa: RUF071  # of the characters that are whole
    return [min(bisect_right(ends, start), len(parts) - 1) for start in starts]


def parts_of_words(words: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return the index of the part in which each word begins; see ``parts_of_tokens`` for words that are not decoded.

    Raises:
        ValueError: the parts together are not the words.
    """
    ends = list(accumulate(len(_without_spaces(part)) for part in parts))
    *starts, length = accumulate(map(len, words), initial=0)
    if length != (ends[-1] if ends else 0):
        raise ValueError(f"the line {quoted(' '.join(words))} does not consist of {quoted(list(parts), 120)}")
    return [min(bisect_right(ends, start), len(parts) - 1) for start in starts]


def _without_spaces(text: str) -> str:
    return text.translate(_NO_SPACES)
