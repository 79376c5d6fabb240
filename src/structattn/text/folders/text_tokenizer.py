"""The tokenizer of a text, with the normalization before it, and the files of a prepared folder that store it."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, SupportsInt

from structattn.support.errors import DataError, quoted
from structattn.support.special_tokens import FIRST_SYMBOL, UNK
from structattn.text.folders.header import CHARACTERS_NAME, HEADER_NAME, VOCABULARY_NAME
from structattn.text.lines import Normalization
from structattn.text.tokenization.byte_pair_encoding import MARK
from structattn.text.tokenization.pretrained_tokenizer import (
    TOKENIZER_NAME,
    PretrainedTokenizer,
    load_pretrained_tokenizer,
)
from structattn.text.tokenization.subword_files import (
    RESERVED_CHARACTER,
    load_subword_model,
    save_subword_model,
    subword_path,
)
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.tokenizers import LEVELS, SymbolTokenizer, Tokenizer
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary, WordCharacterTokenizer

SUBWORD_LEVELS: Final = ("bpe", "sentencepiece-bpe", "sentencepiece-unigram")
TEXT_LEVELS: Final = (*SUBWORD_LEVELS, *LEVELS)
PRETRAINED: Final = "pretrained"
"""The level of the tokenizer of a Hugging Face model."""

UNKNOWN_CLASSES: Final = "unknown_classes"
SPECIAL_TOKENS: Final = "special_tokens"
KEPT_NAME: Final = "kept.json"  # of parallel text


@dataclass(frozen=True)
class TextTokenizer:
    """Encodes lines after normalizing them; ``decode(encode(line))`` is ``normalization(line)`` up to ``<unk>``.

    Args:
        tokenizer: encodes normalized lines.
        normalization: applied to a line before the tokenizer; None for the lines as they are.
        character_tokenizer: encodes words as characters, at level ``word`` of parallel text; None elsewhere.
    """

    tokenizer: Tokenizer
    normalization: Normalization | None
    character_tokenizer: WordCharacterTokenizer | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the tokenizer."""
        return self.tokenizer.vocabulary

    @property
    def reads_words(self) -> bool:
        """Whether its tokens are words."""
        return isinstance(self.tokenizer, SymbolTokenizer) and self.tokenizer.level == "word"

    @property
    def reads_bytes(self) -> bool:
        """Whether its tokens are bytes, all of which are in its vocabulary."""
        return isinstance(self.tokenizer, SymbolTokenizer) and self.tokenizer.level == "byte"

    @cached_property
    def unknown_ids(self) -> tuple[int, ...]:
        """The ids of ``<unk>`` and of the classes of unknown words."""
        if isinstance(self.tokenizer, SymbolTokenizer):
            return self.tokenizer.unknown_ids
        return (UNK,) if self.vocabulary.has_unknown else ()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything that determines how a line is encoded."""
        if self.normalization is None:
            return self.tokenizer.digest
        return hashlib.sha256(
            json.dumps([self.normalization.description(), self.tokenizer.digest]).encode()
        ).hexdigest()

    def normalized(self, line: str) -> str:
        """Return a line as the tokenizer reads it."""
        return line if self.normalization is None else self.normalization(line)

    def encode(self, line: str) -> list[int]:
        """Return the ids of a line, without ``<bos>`` and ``<eos>``.

        Raises:
            TextError: the line cannot be encoded; see ``SymbolTokenizer``.
        """
        return self.tokenizer.encode(self.normalized(line))

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to a line, without control symbols.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return self.tokenizer.decode(ids)

    def save(self, folder: Path, prefix: str = "") -> None:
        """Write the files of the tokenizer."""
        self.vocabulary.save(folder / (prefix + VOCABULARY_NAME))
        if self.character_tokenizer is not None:
            self.character_tokenizer.vocabulary.save(folder / (prefix + CHARACTERS_NAME))
        if isinstance(self.tokenizer, SubwordTokenizer):
            save_subword_model(self.tokenizer.model, folder, prefix)
        if isinstance(self.tokenizer, PretrainedTokenizer):
            self.tokenizer.save(folder, prefix)


def load_text_tokenizer(folder: Path, description: Mapping[str, Any]) -> TextTokenizer:
    """Read the tokenizer of text that is not parallel.

    Raises:
        DataError: a file is missing, damaged, or does not have the digest that the header states.
    """
    level, expected = description.get("level"), description.get("digest")
    normalization = None
    if not description.keys().isdisjoint(Normalization().description()):
        normalization = load_normalization(folder, description)
    if level == PRETRAINED:
        tokenizer = TextTokenizer(_load_pretrained(folder, description), normalization)
    elif level in TEXT_LEVELS:
        classes = description.get(UNKNOWN_CLASSES) is True
        tokenizer = load_tokenizer_files(folder, "", level, normalization, unknown_classes=classes)
    else:
        raise DataError(folder / HEADER_NAME, f"tokenizer: level {level!r} is not one of {sorted(TEXT_LEVELS)}")
    if tokenizer.digest != expected:
        reason = f"changed since it was written: the tokenizer's digest was {expected} and is {tokenizer.digest}"
        raise DataError(folder / VOCABULARY_NAME, reason)
    return tokenizer


def _load_pretrained(folder: Path, description: Mapping[str, Any]) -> PretrainedTokenizer:
    special = description.get(SPECIAL_TOKENS)
    if not isinstance(special, dict) or not all(isinstance(token, str) for token in special.values()):
        raise DataError(folder / HEADER_NAME, f"tokenizer.{SPECIAL_TOKENS}: expected an object of names of tokens")
    return load_pretrained_tokenizer(folder / TOKENIZER_NAME, special)


def load_normalization(folder: Path, description: Mapping[str, Any]) -> Normalization:
    """Return the normalization that a header describes.

    Raises:
        DataError: the description is incomplete.
    """
    values: dict[str, Any] = {name: description.get(name) for name in Normalization().description()}
    for name, value in values.items():
        if not isinstance(value, bool):
            raise DataError(folder, f"its header's tokenizer: {name} is {value!r}; expected true or false")
    return Normalization(**values)


def load_tokenizer_files(
    folder: Path,
    prefix: str,
    level: str,
    normalization: Normalization | None,
    *,
    kept: Sequence[int] | None = None,
    characters: bool = False,
    unknown_classes: bool = False,
) -> TextTokenizer:
    """Read the files that ``TextTokenizer.save`` wrote.

    Args:
        folder: the prepared folder.
        prefix: put before the names of the files.
        level: one of ``TEXT_LEVELS``.
        normalization: applied to lines first.
        kept: the ids of the pieces that are used, at levels of subwords; None for all.
        characters: whether the characters of words are stored.
        unknown_classes: whether unknown words have classes, at level ``word``.

    Raises:
        DataError: a file is missing or damaged.
    """
    vocabulary = Vocabulary.load(folder / (prefix + VOCABULARY_NAME))
    if level not in SUBWORD_LEVELS:
        character_tokenizer = _load_characters(folder / (prefix + CHARACTERS_NAME)) if characters else None
        tokenizer = SymbolTokenizer(level, vocabulary, unknown_classes)
        return TextTokenizer(tokenizer, normalization, character_tokenizer)
    model = load_subword_model(level, folder, prefix)
    _require_pieces(model.pieces, vocabulary, subword_path(level, folder, prefix))
    ids = range(FIRST_SYMBOL + 1, vocabulary.size) if kept is None else kept
    if any(not FIRST_SYMBOL < token < vocabulary.size for token in ids):
        raise DataError(folder / KEPT_NAME, f"names a piece outside the vocabulary of {vocabulary.size} symbols")
    restricted = model.restrict(vocabulary.symbols[token] for token in ids)
    return TextTokenizer(SubwordTokenizer(restricted, vocabulary), normalization)


def _require_pieces(pieces: Iterable[str], vocabulary: Vocabulary, path: Path) -> None:
    """Raise DataError if a symbol of the vocabulary of subwords is neither a character nor a piece of their model."""
    known = set(pieces)
    for symbol in vocabulary.symbols[FIRST_SYMBOL + 1 :]:
        text = symbol.removesuffix(MARK)
        if len(text) > 1 and known.isdisjoint((symbol, text)) and RESERVED_CHARACTER not in symbol:
            raise DataError(path, f"damaged: has no piece {quoted(symbol)}, which is in {VOCABULARY_NAME}")


def _load_characters(path: Path) -> WordCharacterTokenizer:
    vocabulary = Vocabulary.load(path)
    if not vocabulary.has_unknown:
        raise DataError(path, f"has no {UNKNOWN_SYMBOL} for unknown characters")
    return WordCharacterTokenizer(vocabulary)


def word_ids(tokenizer: TextTokenizer, word: str, *, first: bool = False) -> list[int]:
    """Return the ids of a word within a line; the spaces between characters or bytes are not part of words.

    Tokenizers of Hugging Face models may encode a word after a space differently from the first of a line.

    Raises:
        TextError: the word cannot be encoded.
    """
    text = tokenizer.normalized(word)
    after_space = isinstance(tokenizer.tokenizer, PretrainedTokenizer) and not first
    return tokenizer.tokenizer.encode(f" {text}" if after_space else text)
