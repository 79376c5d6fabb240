"""The tokenizer protocol, and tokenizers whose tokens are words, characters or bytes."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Protocol, SupportsInt

from structattn.support.errors import DataError, StructattnError
from structattn.support.special_tokens import UNK
from structattn.text.tokenization.vocabulary import (
    CONTROL_SYMBOLS,
    UNKNOWN_SYMBOL,
    Vocabulary,
    is_unknown_class,
    tokenizer_digest,
    unknown_class,
)

_WORD = re.compile(r"[^ \t]+")

BYTE_SYMBOLS = tuple(chr(byte) if 0x20 <= byte < 0x7F else f"<0x{byte:02X}>" for byte in range(256))
"""The symbol of each byte: the character itself for printable ASCII, otherwise its hexadecimal value."""

_BYTE_OF = {symbol: byte for byte, symbol in enumerate(BYTE_SYMBOLS)}


class Tokenizer(Protocol):
    """Converts lines of text to token ids and back; implemented by ``SymbolTokenizer`` and ``SubwordTokenizer``."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The symbols and their ids."""

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that determines how a line is encoded."""

    def encode(self, line: str) -> list[int]:
        """Return the ids of a line, without ``<bos>`` and ``<eos>``."""

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to a line, without control symbols."""


class TextError(StructattnError):
    """A line of text cannot be encoded.

    Args:
        reason: what was found, and what was expected.
        column: the byte column in the line, counted from 1.
    """

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(f"byte column {column}: {reason}")
        self.reason, self.column = reason, column


@contextmanager
def locate_errors(path: Path, line: int, bytes_before: int, *, exact: bool = True) -> Iterator[None]:
    """Convert a ``TextError`` of a line into a ``DataError`` with file, line and column.

    Args:
        path: the file.
        line: the number of the line, counted from 1.
        bytes_before: the number of bytes of the line before the text.
        exact: whether the text is as in the file; if it was normalized, the column is that of its start.

    Raises:
        DataError: instead of the ``TextError``.
    """
    try:
        yield
    except TextError as error:
        raise DataError(path, error.reason, line, bytes_before + (error.column if exact else 1)) from None


def _word_start(line: str, index: int) -> int:
    return [match.start() for match in _WORD.finditer(line)][index]


def _split_bytes(line: str) -> list[str]:
    return [BYTE_SYMBOLS[byte] for byte in line.encode()]


def _join_bytes(symbols: Sequence[str]) -> str:
    """Decode bytes as UTF-8. A line feed, which a model may generate, is replaced: the result must be one line."""
    parts = (bytes([_BYTE_OF[symbol]]) if symbol in _BYTE_OF else symbol.encode() for symbol in symbols)
    return b"".join(parts).decode(errors="replace").replace("\n", "\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True)
class Level:
    """A unit of text: how to split a line into symbols, join them again, and find the byte offset of symbol i."""

    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]
    byte_offset: Callable[[str, int], int]


LEVELS: Mapping[str, Level] = {
    "word": Level(_WORD.findall, " ".join, lambda line, index: len(line[: _word_start(line, index)].encode())),
    "character": Level(list, "".join, lambda line, index: len(line[:index].encode())),
    "byte": Level(_split_bytes, _join_bytes, lambda _line, index: index),
}
"""``word``: separated by spaces and tabs only; ``character``: code points, spaces included; ``byte``: UTF-8 bytes."""


def get_level(name: object) -> Level:
    """Return the level of that name.

    Raises:
        ValueError: there is no such level.
    """
    if not isinstance(name, str) or name not in LEVELS:
        raise ValueError(f"level {name!r} is not one of {sorted(LEVELS)}")
    return LEVELS[name]


def split_line(level: str, line: str) -> list[str]:
    """Split a line into symbols.

    Raises:
        TextError: see ``refuse_surrogates``; or a word is ``<pad>``, ``<bos>`` or ``<eos>``. As an ordinary word it
            would need a second symbol of that name, and as the control symbol it would let text end a sequence.
    """
    refuse_surrogates(line)
    symbols = get_level(level).split(line)
    refuse_control_symbols(line, symbols)
    return symbols


def refuse_surrogates(line: str) -> None:
    """Check that a line has a form in UTF-8. One that was read from a file has; a string of Python need not have.

    Raises:
        TextError: it has half of a surrogate pair.
    """
    try:
        line.encode()
    except UnicodeEncodeError as error:
        place, column = error.start, len(line[: error.start].encode()) + 1
        reason = (
            f"character {place + 1} is U+{ord(line[place]):04X}, half of a surrogate pair, which text does not have"
        )
        raise TextError(reason, column) from None


def refuse_control_symbols(line: str, symbols: Sequence[str]) -> None:
    """Check that no word of a line is the name of a control symbol.

    Raises:
        TextError: see ``split_line``.
    """
    for control in CONTROL_SYMBOLS:
        if control in symbols:
            column = LEVELS["word"].byte_offset(line, symbols.index(control)) + 1
            raise TextError(f"the word {control} is the name of a control symbol; spell it differently", column)


@dataclass(frozen=True)
class SymbolTokenizer:
    """Tokenizer whose tokens are words, characters or bytes.

    Args:
        level: ``word``, ``character`` or ``byte``.
        vocabulary: the symbols; ``encode`` never returns the ids 0 to 2.
        unknown_classes: whether out-of-vocabulary words become their ``unknown_class`` if the vocabulary has it.

    Raises:
        ValueError: there is no such level.
    """

    level: str
    vocabulary: Vocabulary
    unknown_classes: bool = False

    def __post_init__(self) -> None:
        get_level(self.level)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the level, the vocabulary, and whether unknown words have classes."""
        plain = tokenizer_digest(self.level, self.vocabulary)
        return hashlib.sha256(f"{plain} unknown classes".encode()).hexdigest() if self.unknown_classes else plain

    @cached_property
    def unknown_ids(self) -> tuple[int, ...]:
        """The ids of ``<unk>`` and of the classes of unknown words."""
        unknown = (UNK,) if self.vocabulary.has_unknown else ()
        classes = filter(is_unknown_class, self.vocabulary.symbols) if self.unknown_classes else ()
        return *unknown, *(self.vocabulary.id_of[symbol] for symbol in classes)

    def encode(self, line: str) -> list[int]:
        """Return the ids of a line's symbols, without ``<bos>`` and ``<eos>``.

        Out-of-vocabulary symbols become ``<unk>`` if the vocabulary has it; so does the word ``<unk>`` itself.

        Raises:
            TextError: a symbol is not in a vocabulary without ``<unk>``, or is the name of a control symbol.
        """
        return self.encode_symbols(split_line(self.level, line), line)

    def ids_of(self, symbols: Iterable[str]) -> Iterator[int]:
        """Return the id of each symbol; symbols outside the vocabulary become ``<unk>``, id 3."""
        id_of = self.vocabulary.id_of
        if self.unknown_classes:
            return map(self._id_or_class, symbols)
        return map(id_of.get, symbols, repeat(UNK))

    def _id_or_class(self, word: str) -> int:
        id_of = self.vocabulary.id_of
        return known if (known := id_of.get(word)) is not None else id_of.get(unknown_class(word), UNK)

    def encode_symbols(self, symbols: Sequence[str], line: str) -> list[int]:
        """Encode a line that ``split_line`` has already split into ``symbols``."""
        id_of = self.vocabulary.id_of
        if self.vocabulary.has_unknown:
            return list(self.ids_of(symbols))
        if self.unknown_classes:
            symbols = [symbol if symbol in id_of else unknown_class(symbol) for symbol in symbols]
        try:
            return [id_of[symbol] for symbol in symbols]
        except KeyError:
            index = next(index for index, symbol in enumerate(symbols) if symbol not in id_of)
        column = LEVELS[self.level].byte_offset(line, index) + 1
        reason = f"{symbols[index]!r} is not in the vocabulary, which has no {UNKNOWN_SYMBOL}"
        if symbols[index] == " ":
            reason += "; its symbols are characters, written without spaces"
        raise TextError(reason, column)

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to a line, without control symbols; invalid UTF-8 becomes U+FFFD.

        Words are joined by single spaces, so ``decode(encode(line))`` is ``line`` up to spaces and ``<unk>``.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return LEVELS[self.level].join(self.vocabulary.symbols_of(ids))


def choose_vocabulary(
    level: str,
    counts: Mapping[str, int],
    *,
    min_count: int = 1,
    max_symbols: int | None = None,
    held_out: Iterable[str] = (),
) -> Vocabulary:
    """Return the vocabulary of a text: its symbols by descending count, ties by code point.

    It has ``<unk>`` only if needed: if a symbol of the text was left out, if one of ``held_out`` is not in the text, or
    if either contains the word ``<unk>``. The vocabulary of bytes is always all 256 in numeric order.

    Args:
        level: ``word``, ``character`` or ``byte``.
        counts: the number of occurrences of each symbol in the training text.
        min_count: less frequent symbols are left out.
        max_symbols: the maximum number of symbols, not counting special symbols.
        held_out: symbols of other texts that must be encodable.
    """
    if level == "byte":
        return Vocabulary.from_symbols(BYTE_SYMBOLS)
    ranked = sorted(sorted(counts), key=counts.__getitem__, reverse=True)  # stable, also in reverse
    kept = [symbol for symbol in ranked if counts[symbol] >= min_count and symbol != UNKNOWN_SYMBOL][:max_symbols]
    known = set(kept)
    unknown = len(kept) < len(counts) or any(symbol not in known for symbol in held_out)
    return Vocabulary.from_symbols(kept, unknown=unknown)


def build_tokenizer(
    level: str,
    lines: Iterable[str],
    *,
    min_count: int = 1,
    max_symbols: int | None = None,
    held_out: Iterable[str] = (),
) -> SymbolTokenizer:
    """Build a tokenizer from training text.

    Args:
        level: ``word``, ``character`` or ``byte``.
        lines: the training text.
        min_count: see ``choose_vocabulary``, as for ``max_symbols``.
        max_symbols: the maximum number of symbols.
        held_out: lines of other texts that must be encodable.

    Raises:
        TextError: a word is the name of a control symbol.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(split_line(level, line))
    others = (symbol for line in held_out for symbol in split_line(level, line))
    vocabulary = choose_vocabulary(level, counts, min_count=min_count, max_symbols=max_symbols, held_out=others)
    return SymbolTokenizer(level, vocabulary)
