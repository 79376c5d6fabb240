"""Lines of text to ids and back, by words, characters or bytes."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsInt

from structattn.data.tokenization.vocabulary import CONTROL_SYMBOLS, UNKNOWN_SYMBOL, Vocabulary, tokenizer_digest
from structattn.support.errors import StructattnError
from structattn.support.special_tokens import UNK

_WORD = re.compile(r"[^ \t]+")

BYTE_SYMBOLS = tuple(chr(byte) if 0x20 <= byte < 0x7F else f"<0x{byte:02X}>" for byte in range(256))
"""The symbol of each byte: itself where it is printable ASCII, else its number."""

_BYTE_OF = {symbol: byte for byte, symbol in enumerate(BYTE_SYMBOLS)}


class TextError(StructattnError):
    """A line of text has no encoding.

    Args:
        reason: what was found, and what was expected.
        column: the byte column in the line, counted from 1.
    """

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(f"byte column {column}: {reason}")
        self.reason, self.column = reason, column


def _split_words(line: str) -> list[str]:
    return _WORD.findall(line)


def _words_start(line: str, index: int) -> int:
    return [found.start() for found in _WORD.finditer(line)][index]


def _split_bytes(line: str) -> list[str]:
    return [BYTE_SYMBOLS[byte] for byte in line.encode()]


def _join_bytes(symbols: Sequence[str]) -> str:
    """A line; a line feed, which only a model can have put there, would make two of it."""
    parts = (bytes([_BYTE_OF[symbol]]) if symbol in _BYTE_OF else symbol.encode() for symbol in symbols)
    return b"".join(parts).decode(errors="replace").replace("\n", "\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True)
class Level:
    """One way to cut a line: into symbols, back into a line, and the byte offset at which symbol i begins."""

    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]
    byte_offset: Callable[[str, int], int]


LEVELS: Mapping[str, Level] = {
    "word": Level(_split_words, " ".join, lambda line, index: len(line[: _words_start(line, index)].encode())),
    "character": Level(list, "".join, lambda line, index: len(line[:index].encode())),
    "byte": Level(_split_bytes, _join_bytes, lambda _line, index: index),
}
"""``word``: what stands between spaces and tabs, and nothing else parts words; ``character``: code points, spaces
included; ``byte``: the bytes of UTF-8."""


def level_named(name: object) -> Level:
    """The level of that name.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(name, str) or name not in LEVELS:
        raise ValueError(f"level {name!r} is not one of {sorted(LEVELS)}")
    return LEVELS[name]


def split_line(level: str, line: str) -> list[str]:
    """Cut a line into symbols.

    Raises:
        TextError: a word is spelt like ``<pad>``, ``<bos>`` or ``<eos>``. Numbering it as an ordinary word would need
            a second symbol of that name, and taking it for the control symbol would let text end a sequence.
    """
    symbols = level_named(level).split(line)
    for control in CONTROL_SYMBOLS:
        if control in symbols:
            column = LEVELS[level].byte_offset(line, symbols.index(control)) + 1
            raise TextError(f"the word {control} is the name of a control symbol; spell it differently", column)
    return symbols


@dataclass(frozen=True)
class Tokenizer:
    """A level and a vocabulary: all that is needed to turn lines into ids and back.

    Args:
        level: ``word``, ``character`` or ``byte``.
        vocabulary: the symbols; ids 0 to 2 never come out of ``encode``.
    """

    level: str
    vocabulary: Vocabulary

    def __post_init__(self) -> None:
        level_named(self.level)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the level and the vocabulary."""
        return tokenizer_digest(self.level, self.vocabulary)

    def encode(self, line: str) -> list[int]:
        """The ids of a line's symbols, without ``<bos>`` and ``<eos>``.

        A symbol outside the vocabulary becomes ``<unk>`` where there is one; so does the word ``<unk>`` itself.

        Raises:
            TextError: a symbol is outside a vocabulary without ``<unk>``, or spelt like a control symbol.
        """
        return self.encode_symbols(split_line(self.level, line), line)

    def encode_symbols(self, symbols: Sequence[str], line: str) -> list[int]:
        """``encode`` for a line that has been cut by ``split_line`` already."""
        id_of = self.vocabulary.id_of
        if self.vocabulary.has_unknown:
            return [id_of.get(symbol, UNK) for symbol in symbols]
        try:
            return [id_of[symbol] for symbol in symbols]
        except KeyError:
            index = next(index for index, symbol in enumerate(symbols) if symbol not in id_of)
        column = LEVELS[self.level].byte_offset(line, index) + 1
        reason = f"{symbols[index]!r} is not in the vocabulary, which has no {UNKNOWN_SYMBOL}"
        raise TextError(reason, column)

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """The line that ids stand for; control symbols are left out, bytes that are not UTF-8 become U+FFFD.

        Words are joined by single spaces, so ``decode(encode(line))`` is ``line`` up to spaces and unknown words.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return LEVELS[self.level].join(self.vocabulary.visible(ids))


def chosen_vocabulary(
    level: str,
    counts: Mapping[str, int],
    *,
    min_count: int = 1,
    max_symbols: int | None = None,
    held_out: Iterable[str] = (),
) -> Vocabulary:
    """The vocabulary of a text: its symbols by falling count, equal counts by code point.

    There is an ``<unk>`` only where something needs it: a symbol of the text left out, one of ``held_out`` not in the
    text, or the word ``<unk>`` in either. Bytes are always all 256, in their order, and need none.

    Args:
        level: ``word``, ``character`` or ``byte``.
        counts: how often each symbol occurs in the training text.
        min_count: symbols that occur less often are left out.
        max_symbols: at most so many are kept, special symbols not counted.
        held_out: the symbols of other texts that must be encodable.
    """
    if level == "byte":
        return Vocabulary.of(BYTE_SYMBOLS)
    ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
    kept = [symbol for symbol in ranked if counts[symbol] >= min_count and symbol != UNKNOWN_SYMBOL][:max_symbols]
    known = set(kept)
    return Vocabulary.of(kept, unknown=len(kept) < len(counts) or any(symbol not in known for symbol in held_out))


def build_tokenizer(
    level: str,
    lines: Iterable[str],
    *,
    min_count: int = 1,
    max_symbols: int | None = None,
    held_out: Iterable[str] = (),
) -> Tokenizer:
    """The tokenizer of a training text; see ``chosen_vocabulary`` for the options. ``held_out`` are other lines.

    Raises:
        TextError: a word is spelt like a control symbol.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(split_line(level, line))
    others = (symbol for line in held_out for symbol in split_line(level, line))
    vocabulary = chosen_vocabulary(level, counts, min_count=min_count, max_symbols=max_symbols, held_out=others)
    return Tokenizer(level, vocabulary)
