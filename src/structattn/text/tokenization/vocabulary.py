"""Vocabularies: three control symbols, optionally ``<unk>``, then the symbols of the text; classes of unknown words."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Final, SupportsInt

from structattn.support.errors import DataError, UsageError
from structattn.support.files import write_unflushed
from structattn.support.reading import content_of
from structattn.support.special_tokens import BOS, EOS, FIRST_SYMBOL, UNK

_SUFFIXES: Final = ("ed", "ing", "ion", "er", "est", "ly", "ity", "y", "al")
_CLASS: Final = re.compile(rf"UNK(-CAPS|-INITC|-LC)?(-NUM)?(-DASH)?(-s|-{'|-'.join(_SUFFIXES)})?")


def unknown_class(word: str) -> str:
    """Return the class of an unknown word."""
    has_digit, has_hyphen = any(map(str.isdigit, word)), "-" in word
    suffix = _suffix(word.lower(), plain=not has_digit and not has_hyphen)
    return "UNK" + _shape(word) + "-NUM" * has_digit + "-DASH" * has_hyphen + suffix


def is_unknown_class(symbol: str) -> bool:
    """Return whether a symbol is the name of a class."""
    return _CLASS.fullmatch(symbol) is not None


def _shape(word: str) -> str:
    if not any(map(str.islower, word)):
        return "-CAPS" if any(map(str.isupper, word)) else ""
    return "-INITC" if word[0].isupper() else "-LC"


def _suffix(word: str, plain: bool) -> str:
    if len(word) >= 3 and word.endswith("s") and word[-2] not in "siu":
        return "-s"
    fitting = (suffix for suffix in _SUFFIXES if word.endswith(suffix)) if plain and len(word) >= 5 else iter(())
    return next((f"-{suffix}" for suffix in fitting), "")


def replace_rare_words(counts: Mapping[str, int], min_count: int) -> Counter[str]:
    """Replace counted words that are rarer than ``min_count`` by their classes."""
    replaced = Counter[str]()
    for word, count in counts.items():
        replaced[word if count >= min_count else unknown_class(word)] += count
    return replaced


CONTROL_SYMBOLS = ("<pad>", "<bos>", "<eos>")
UNKNOWN_SYMBOL = "<unk>"

MAX_FILE_BYTES: Final = 1 << 26
"""The maximum size of the file of a vocabulary, subwords or tokenizer: reading one from a stranger takes below 1 GB."""
_MAX_SYMBOLS: Final = 4_000_000

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}


@dataclass(frozen=True)
class Vocabulary:
    """All symbols, including the special ones; the index of a symbol is its id.

    Args:
        symbols: ``<pad>``, ``<bos>``, ``<eos>``, optionally ``<unk>``, then the symbols of the text, all distinct.

    Raises:
        ValueError: a special symbol is missing or misplaced, or a symbol is empty or occurs twice.
    """

    symbols: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.symbols[:FIRST_SYMBOL] != CONTROL_SYMBOLS:
            raise ValueError(f"a vocabulary begins with {CONTROL_SYMBOLS}, but found {self.symbols[:FIRST_SYMBOL]}")
        if "" in self.symbols:
            raise ValueError(f"symbol {self.symbols.index('')} is empty")
        if UNKNOWN_SYMBOL in self.symbols[UNK + 1 :]:
            raise ValueError(f"{UNKNOWN_SYMBOL} may only have id {UNK}, not {self.id_of[UNKNOWN_SYMBOL]}")
        if len(self.id_of) != len(self.symbols):
            twice = next(symbol for index, symbol in enumerate(self.symbols) if self.id_of[symbol] != index)
            raise ValueError(f"the symbol {twice!r} occurs twice")

    @classmethod
    def from_symbols(cls, symbols: Iterable[str], unknown: bool = False) -> "Vocabulary":
        """Create a vocabulary of the special symbols and ``symbols``."""
        return cls((*CONTROL_SYMBOLS, *((UNKNOWN_SYMBOL,) if unknown else ()), *symbols))

    @property
    def size(self) -> int:
        """The number of symbols, including the special ones."""
        return len(self.symbols)

    @cached_property
    def id_of(self) -> Mapping[str, int]:
        """The id of each symbol, including the special ones."""
        return MappingProxyType({symbol: index for index, symbol in enumerate(self.symbols)})

    @property
    def has_unknown(self) -> bool:
        """Whether out-of-vocabulary symbols are mapped to ``<unk>``."""
        return self.symbols[UNK : UNK + 1] == (UNKNOWN_SYMBOL,)

    def symbols_of(self, ids: Iterable[SupportsInt]) -> list[str]:
        """Return the symbols of ids, without control symbols.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        tokens = [int(token) for token in ids]
        for token in tokens:
            if not 0 <= token < self.size:
                raise ValueError(f"id {token} is outside the vocabulary of {self.size} symbols")
        return [self.symbols[token] for token in tokens if token >= FIRST_SYMBOL]

    def to_text(self) -> str:
        r"""Write one symbol per line; ``\``, line feed and carriage return are escaped as ``\\``, ``\n`` and ``\r``."""
        return "".join(re.sub(r"[\\\n\r]", lambda match: _ESCAPES[match[0]], symbol) + "\n" for symbol in self.symbols)

    @classmethod
    def from_text(cls, text: str) -> "Vocabulary":
        """Parse the output of ``to_text``.

        Raises:
            ValueError: the text is malformed; the message gives the line.
        """
        if (size := text.count("\n")) > _MAX_SYMBOLS:
            raise ValueError(f"{size} symbols; expected at most {_MAX_SYMBOLS}")
        *lines, rest = text.split("\n")
        if rest:
            raise ValueError(f"line {len(lines) + 1}: the last line has no line feed; the text is truncated")
        return cls(tuple(_unescape(line, number) for number, line in enumerate(lines, start=1)))

    def save(self, path: str | PathLike[str]) -> None:
        """Write ``to_text`` to a file of a prepared folder, which flushes it.

        Raises:
            UsageError: ``load`` would refuse the file because of its size.
        """
        text = self.to_text().encode()
        if self.size > _MAX_SYMBOLS or len(text) > MAX_FILE_BYTES:
            limits = (
                f"at most {_MAX_SYMBOLS} of {MAX_FILE_BYTES} bytes together; min_count or max_symbols leave some out"
            )
            raise UsageError(f"the vocabulary has {self.size} symbols of {len(text)} bytes; expected {limits}")
        write_unflushed(Path(path), text)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Vocabulary":
        """Read a file that ``save`` wrote.

        Raises:
            DataError: the file cannot be read, or is not a vocabulary.
        """
        path = Path(path)
        try:
            return cls.from_text(content_of(path, MAX_FILE_BYTES).decode())
        except ValueError as error:
            raise DataError(path, f"not a vocabulary: {error}") from None


def _unescape(line: str, number: int) -> str:
    if re.fullmatch(r"(?:[^\\]|\\[\\nr])*", line) is None:
        raise ValueError(f"line {number}: {line!r} has a backslash that is not followed by a backslash, n or r")
    return re.sub(r"\\.", lambda match: _UNESCAPES[match[0]], line)


def tokenizer_digest(level: str, vocabulary: Vocabulary) -> str:
    """Return the hexadecimal SHA-256 of the level and the vocabulary, which determine how a line is encoded."""
    description = json.dumps({"format_version": 1, "level": level, "vocabulary": vocabulary.symbols})
    return hashlib.sha256(description.encode()).hexdigest()


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
