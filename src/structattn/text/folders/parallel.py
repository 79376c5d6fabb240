"""Parallel text of a prepared folder: how the lines of each side are encoded, and the files that store this."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from structattn.support.errors import DataError
from structattn.support.files import write_unflushed
from structattn.support.json_files import load_json
from structattn.support.reading import MAX_TEXT_BYTES, content_of
from structattn.support.shapes import Int32, Int64
from structattn.support.special_tokens import FIRST_SYMBOL, UNK
from structattn.text.folders.header import HEADER_NAME, RARE, RARE_WORDS_NAME, Header
from structattn.text.folders.sequences import Sequences, map_array
from structattn.text.folders.text_tokenizer import (
    KEPT_NAME,
    SUBWORD_LEVELS,
    TEXT_LEVELS,
    TextTokenizer,
    load_normalization,
    load_tokenizer_files,
)
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, WordCharacterTokenizer

SOURCE_PREFIX: Final = "source_"
CHARACTERS_DIGEST: Final = "characters_digest"  # absent from folders without the characters of words

SideName = Literal["source", "target"]


@dataclass(frozen=True)
class ParallelSides:
    """Both sides of parallel text, translated from ``source`` into ``target``."""

    source: TextTokenizer
    target: TextTokenizer
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
    """Write the files of the tokenizers; both sides share one set if ``joint``."""
    sides.target.save(folder)
    if not joint:
        sides.source.save(folder, SOURCE_PREFIX)
    if sides.level in SUBWORD_LEVELS:
        kept = {"source": _kept_ids(sides.source), "target": _kept_ids(sides.target)}
        write_unflushed(folder / KEPT_NAME, json.dumps(kept) + "\n")


def load_sides(folder: Path, description: Mapping[str, Any]) -> ParallelSides:
    """Read the files that ``save_sides`` wrote.

    Raises:
        DataError: a file is missing, damaged, or does not have the digest that the header states.
    """
    level, joint = description.get("level"), description.get("joint")
    if level not in TEXT_LEVELS or not isinstance(joint, bool):
        raise DataError(folder, f"its header describes an unknown tokenizer: level {level!r}, joint {joint!r}")
    normalization = load_normalization(folder, description)
    kept = _load_kept(folder) if level in SUBWORD_LEVELS else {}
    load = partial(
        load_tokenizer_files, level=level, normalization=normalization, characters=CHARACTERS_DIGEST in description
    )
    target = load(folder, "", kept=kept.get("target"))
    source = load(folder, "" if joint else SOURCE_PREFIX, kept=kept.get("source"))
    sides = ParallelSides(source, target, level)
    for name, present in sides.digests().items():
        if present != description.get(name):
            changed = f"the {name} of its tokenizer was {description.get(name)} and is {present}"
            raise DataError(folder, f"changed since it was written: {changed}")
    return sides


def _kept_ids(side: TextTokenizer) -> list[int] | None:
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
    kept = load_json(path)
    fits = isinstance(kept, dict) and set(kept) == {"source", "target"}
    if not fits or not all(ids is None or _are_ids(ids) for ids in kept.values()):
        raise DataError(path, "expected an object with source and target, each null or a list of ids")
    return dict(kept)


def _are_ids(ids: object) -> bool:
    return isinstance(ids, list) and all(type(token) is int for token in ids)


class RareWordCollector:
    """Assigns rare words indices from 1 in order of appearance; memory holds each distinct word."""

    def __init__(self) -> None:
        self._index_of = {UNKNOWN_SYMBOL: 0}

    def add(self, words: Iterable[str]) -> list[int]:
        """Add words that are ``<unk>``; return the index of each, 0 for the word ``<unk>`` itself."""
        return [self._index_of.setdefault(word, len(self._index_of)) for word in words]

    def save(self, folder: Path, prefix: str) -> None:
        """Write the words, one per line; no word contains a line feed."""
        words = list(self._index_of)[1:]
        write_unflushed(folder / (prefix + RARE_WORDS_NAME), "".join(word + "\n" for word in words))


@dataclass(frozen=True)
class RareWords:
    """The words behind the ``<unk>`` of one side of a split; ``rare[i]`` holds the word indices of sequence i.

    Args:
        indices: the word index of each ``<unk>``, from 1; 0 if the text itself contains ``<unk>``.
        words: the word of index n is ``words[n - 1]``.
        character_tokenizer: encodes words as characters.
    """

    sequences: Sequences
    indices: Int32[np.ndarray, " unknown"]
    words: tuple[str, ...]
    character_tokenizer: WordCharacterTokenizer

    def __getitem__(self, index: int) -> Int32[np.ndarray, " unknown_here"]:
        return self.indices[self._starts[index] : self._starts[index + 1]]

    def characters(self, word_index: int) -> list[int]:
        """Return the character ids of the word of that index."""
        return self.character_tokenizer.encode(self.words[word_index - 1])

    def positions(self, index: int) -> list[tuple[int, int]]:
        """Return position and word index of each ``<unk>`` of sequence ``index`` whose word is known."""
        positions = np.flatnonzero(self.sequences[index] == UNK)
        return [(int(position), int(word)) for position, word in zip(positions, self[index], strict=True) if word]

    @cached_property
    def _starts(self) -> Int64[np.ndarray, " offsets"]:
        return np.searchsorted(np.flatnonzero(self.sequences.tokens == UNK), self.sequences.offsets)


def load_rare_words(
    folder: Path, header: Header, sides: ParallelSides, split: str, sequences: tuple[Sequences, Sequences]
) -> tuple[RareWords, RareWords] | None:
    """Load the rare words of both sides of a split, memory-mapped.

    Returns:
        The rare words of source and target; None unless tokens are words and their characters are stored.

    Raises:
        DataError: a file is missing or damaged, or does not match the header.
    """
    tokenizers = sides.source.character_tokenizer, sides.target.character_tokenizer
    if tokenizers[0] is None or tokenizers[1] is None:
        return None
    target = _load_words(folder, header, RARE_WORDS_NAME)
    source = target if header.tokenizer["joint"] else _load_words(folder, header, SOURCE_PREFIX + RARE_WORDS_NAME)
    counts = [_unknown_count(folder, header, split, side) for side in ("source", "target")]
    return (
        _map_rare_words(folder / split / "source", sequences[0], counts[0], source, tokenizers[0]),
        _map_rare_words(folder / split, sequences[1], counts[1], target, tokenizers[1]),
    )


def _load_words(folder: Path, header: Header, name: str) -> tuple[str, ...]:
    path, expected = folder / name, header.files.get(name)
    content = content_of(path, MAX_TEXT_BYTES)
    present = hashlib.sha256(content).hexdigest()
    if present != expected:
        raise DataError(path, f"changed since it was written: its SHA-256 was {expected} and is {present}")
    try:
        return tuple(content.decode().split("\n")[:-1])
    except UnicodeDecodeError as error:
        raise DataError(path, f"damaged: {error}") from None


def _unknown_count(folder: Path, header: Header, split: str, side: SideName) -> int:
    """Return the number of ``<unk>`` that the header states."""
    count = header.count("unknown_tokens", split, side)
    if count is None:
        raise DataError(
            folder / HEADER_NAME, f"does not state how many {side} tokens of {split!r} are {UNKNOWN_SYMBOL}"
        )
    return count


def _map_rare_words(
    folder: Path, sequences: Sequences, count: int, words: tuple[str, ...], tokenizer: WordCharacterTokenizer
) -> RareWords:
    indices: NDArray[Any] = map_array(folder, RARE, count)
    if count and not 0 <= int(indices.min()) <= int(indices.max()) <= len(words):
        stated = f"{int(indices.min())} to {int(indices.max())}"
        raise DataError(folder / RARE.name, f"damaged: refers to words {stated}; there are {len(words)} words")
    return RareWords(sequences, indices, words, tokenizer)


@dataclass(frozen=True)
class Pairs:
    """The pairs of one split; ``pairs[i]`` is the i-th as (source ids, target ids).

    Args:
        lines: the line number of each pair in the original files, counted from 1; dropped pairs leave gaps.
        rare: the rare words of source and target, at level ``word``.

    Raises:
        ValueError: the numbers of source sequences, target sequences and lines differ.
    """

    source: Sequences
    target: Sequences
    lines: Int64[np.ndarray, " pairs"]
    rare: tuple[RareWords, RareWords] | None = None

    def __post_init__(self) -> None:
        if not len(self.source) == len(self.target) == len(self.lines):
            sizes = f"{len(self.source)} source sequences, {len(self.target)} target sequences, {len(self.lines)} lines"
            raise ValueError(f"expected equally many of each: {sizes}")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Int32[np.ndarray, " source"], Int32[np.ndarray, " target"]]:
        return self.source[index], self.target[index]
