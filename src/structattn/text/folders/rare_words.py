"""Rare words: the out-of-vocabulary words of parallel text, stored so that their characters stay known.

rare_words.txt          one word per line, those of the target; source_rare_words.txt if the vocabularies are separate
SPLIT/rare.bin          int32: for each <unk> of the target, in order, the line of its word, counted from 1; 0 if the
                        text itself contains the word <unk>, whose characters are unknown
SPLIT/source/rare.bin   the same for the source
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64
from numpy.typing import NDArray

from structattn.support.errors import DataError
from structattn.support.files import write_unflushed
from structattn.support.reading import MAX_TEXT_BYTES, read_bytes
from structattn.support.special_tokens import UNK
from structattn.text.folders.header import HEADER_NAME, RARE, RARE_WORDS_NAME, Header
from structattn.text.folders.parallel_side import SOURCE_PREFIX, ParallelSides, SideName
from structattn.text.folders.sequences import Sequences, map_array
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL
from structattn.text.tokenization.word_characters import WordCharacterTokenizer


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
        sequences: the sequences of that side.
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

    Args:
        folder: the prepared folder.
        header: its header.
        sides: its tokenizers.
        split: the name of the split.
        sequences: source and target sequences of the split.

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
    try:
        content = read_bytes(path, MAX_TEXT_BYTES)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DataError(path, f"changed since it was written: its SHA-256 was {expected} and is {found}")
    try:
        return tuple(content.decode().split("\n")[:-1])
    except UnicodeDecodeError as error:
        raise DataError(path, f"damaged: {error}") from None


def _unknown_count(folder: Path, header: Header, split: str, side: SideName) -> int:
    """Return the number of ``<unk>`` that the header states."""
    count: Any = header.extra.get("unknown_tokens")
    for key in (split, side):
        count = count.get(key) if isinstance(count, dict) else None
    if not isinstance(count, int) or count < 0:
        raise DataError(
            folder / HEADER_NAME, f"does not state how many {side} tokens of {split!r} are {UNKNOWN_SYMBOL}"
        )
    return count


def _map_rare_words(
    folder: Path, sequences: Sequences, count: int, words: tuple[str, ...], tokenizer: WordCharacterTokenizer
) -> RareWords:
    indices: NDArray[Any] = map_array(folder, RARE, count)
    if count and not 0 <= int(indices.min()) <= int(indices.max()) <= len(words):
        found = f"{int(indices.min())} to {int(indices.max())}"
        raise DataError(folder / RARE.name, f"damaged: refers to words {found}; there are {len(words)} words")
    return RareWords(sequences, indices, words, tokenizer)
