"""The two sides of parallel text: how the lines of each are encoded, and the files that store this."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, SupportsInt

from structattn.data.folders.header import CHARACTERS_NAME, VOCABULARY_NAME
from structattn.data.text.normalization import Normalization
from structattn.data.tokenization.subword_files import load_subword_model, save_subword_model
from structattn.data.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.data.tokenization.tokenizers import LEVELS, SymbolTokenizer, Tokenizer
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary
from structattn.data.tokenization.word_characters import WordCharacterTokenizer
from structattn.support.errors import DataError
from structattn.support.files import write_unflushed
from structattn.support.json_files import load_json
from structattn.support.special_tokens import FIRST_SYMBOL

SUBWORD_LEVELS: Final = ("bpe", "sentencepiece-bpe", "sentencepiece-unigram")
PARALLEL_LEVELS: Final = (*SUBWORD_LEVELS, *LEVELS)
KEPT_NAME: Final = "kept.json"
SOURCE_PREFIX: Final = "source_"
CHARACTERS_DIGEST: Final = "characters_digest"  # absent from folders without the characters of words

SideName = Literal["source", "target"]


@dataclass(frozen=True)
class ParallelSide:
    """One side of parallel text; ``decode(encode(line))`` is ``normalization(line)`` up to ``<unk>``.

    Args:
        tokenizer: encodes normalized lines.
        normalization: applied to a line before the tokenizer.
        character_tokenizer: encodes words as characters, at level ``word``; None elsewhere.
    """

    tokenizer: Tokenizer
    normalization: Normalization
    character_tokenizer: WordCharacterTokenizer | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the tokenizer."""
        return self.tokenizer.vocabulary

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything that determines how a line is encoded."""
        return hashlib.sha256(
            json.dumps([self.normalization.description(), self.tokenizer.digest]).encode()
        ).hexdigest()

    def encode(self, line: str) -> list[int]:
        """Return the ids of a line, without ``<bos>`` and ``<eos>``.

        Raises:
            TextError: a word is the name of a control symbol, at level ``word``.
        """
        return self.tokenizer.encode(self.normalization(line))

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to a line, without control symbols.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return self.tokenizer.decode(ids)


@dataclass(frozen=True)
class ParallelSides:
    """Both sides of parallel text.

    Args:
        source: the language translated from.
        target: the language translated into.
        level: one of ``PARALLEL_LEVELS``.
    """

    source: ParallelSide
    target: ParallelSide
    level: str

    @property
    def joint(self) -> bool:
        """Whether both sides have the same vocabulary."""
        return self.source.vocabulary == self.target.vocabulary

    def digests(self) -> dict[str, str]:
        """Return the digests that the header stores."""
        found = {"digest": self.target.digest, "source_digest": self.source.digest}
        for prefix, side in (("", self.target), (SOURCE_PREFIX, self.source)):
            if side.character_tokenizer is not None:
                found[prefix + CHARACTERS_DIGEST] = side.character_tokenizer.digest
        return found


def save_sides(sides: ParallelSides, folder: Path, joint: bool) -> None:
    """Write the files of the tokenizers.

    Args:
        sides: both sides.
        folder: the prepared folder.
        joint: whether both sides share one set of files; otherwise each has its own.
    """
    prefixes = {"": sides.target} if joint else {"": sides.target, SOURCE_PREFIX: sides.source}
    for prefix, side in prefixes.items():
        side.vocabulary.save(folder / (prefix + VOCABULARY_NAME))
        if side.character_tokenizer is not None:
            side.character_tokenizer.vocabulary.save(folder / (prefix + CHARACTERS_NAME))
        if isinstance(side.tokenizer, SubwordTokenizer):
            save_subword_model(side.tokenizer.model, folder, prefix)
    if sides.level in SUBWORD_LEVELS:
        kept = {"source": _kept_ids(sides.source), "target": _kept_ids(sides.target)}
        write_unflushed(folder / KEPT_NAME, json.dumps(kept) + "\n")


def load_sides(folder: Path, description: Mapping[str, Any]) -> ParallelSides:
    """Read the files that ``save_sides`` wrote.

    Args:
        folder: the prepared folder.
        description: ``tokenizer`` of its header.

    Raises:
        DataError: a file is missing, damaged, or does not have the digest that the header states.
    """
    level, joint = description.get("level"), description.get("joint")
    if level not in PARALLEL_LEVELS or not isinstance(joint, bool):
        raise DataError(folder, f"its header describes an unknown tokenizer: level {level!r}, joint {joint!r}")
    try:
        normalization = Normalization.from_description(description)
    except ValueError as error:
        raise DataError(folder, f"its header's tokenizer: {error}") from None
    kept = _load_kept(folder) if level in SUBWORD_LEVELS else {}
    characters = CHARACTERS_DIGEST in description
    target = _load_side(folder, "", level, normalization, kept.get("target"), characters)
    source = _load_side(folder, "" if joint else SOURCE_PREFIX, level, normalization, kept.get("source"), characters)
    sides = ParallelSides(source, target, level)
    for name, found in sides.digests().items():
        if found != description.get(name):
            changed = f"the {name} of its tokenizer was {description.get(name)} and is {found}"
            raise DataError(folder, f"changed since it was written: {changed}")
    return sides


def _load_side(
    folder: Path, prefix: str, level: str, normalization: Normalization, kept: list[int] | None, characters: bool
) -> ParallelSide:
    vocabulary = Vocabulary.load(folder / (prefix + VOCABULARY_NAME))
    if level not in SUBWORD_LEVELS:
        character_tokenizer = _load_characters(folder / (prefix + CHARACTERS_NAME)) if characters else None
        return ParallelSide(SymbolTokenizer(level, vocabulary), normalization, character_tokenizer)
    model = load_subword_model(level, folder, prefix)
    ids = range(FIRST_SYMBOL + 1, vocabulary.size) if kept is None else kept
    if any(not FIRST_SYMBOL < token < vocabulary.size for token in ids):
        raise DataError(folder / KEPT_NAME, f"names a piece outside the vocabulary of {vocabulary.size} symbols")
    restricted = model.restrict(vocabulary.symbols[token] for token in ids)
    return ParallelSide(SubwordTokenizer(restricted, vocabulary), normalization)


def _load_characters(path: Path) -> WordCharacterTokenizer:
    vocabulary = Vocabulary.load(path)
    if not vocabulary.has_unknown:
        raise DataError(path, f"has no {UNKNOWN_SYMBOL} for unknown characters")
    return WordCharacterTokenizer(vocabulary)


def _kept_ids(side: ParallelSide) -> list[int] | None:
    """Return the ids of the pieces that are used on a side; None for all."""
    tokenizer = side.tokenizer
    assert isinstance(tokenizer, SubwordTokenizer)
    kept = tokenizer.model.kept
    pieces = side.vocabulary.symbols[FIRST_SYMBOL + 1 :]
    if kept is None or len(kept) == len(pieces):
        return None
    return sorted(side.vocabulary.id_of[piece] for piece in kept)


def _load_kept(folder: Path) -> dict[str, list[int] | None]:
    path = folder / KEPT_NAME
    found = load_json(path)
    fits = isinstance(found, dict) and set(found) == {"source", "target"}
    if not fits or not all(ids is None or _are_ids(ids) for ids in found.values()):
        raise DataError(path, "expected an object with source and target, each null or a list of ids")
    return dict(found)


def _are_ids(ids: object) -> bool:
    return isinstance(ids, list) and all(type(token) is int for token in ids)
