"""Prepared folders: numbered sequences, memory-mapped, with all that is needed to trust them.

header.json                     see header.py
vocabulary.txt                  one symbol a line
SPLIT/tokens.bin                int32, little endian: all sequences one after the other, no <bos>, no <eos>
SPLIT/offsets.bin               int64: sequence i is tokens[offsets[i]:offsets[i + 1]]
SPLIT/log_probabilities.bin     float64, optional: log p(w | length of w) of each sequence
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32, Int64
from numpy.typing import NDArray

from structattn.data.header import (
    HEADER_NAME,
    LOG_PROBABILITIES,
    OFFSETS,
    TOKENS,
    VOCABULARY_NAME,
    Header,
    StoredArray,
    read_header,
)
from structattn.data.tokenizers import Tokenizer, level_named
from structattn.data.vocabulary import EOS, Vocabulary, tokenizer_digest
from structattn.data.writing import source_entry, write_prepared
from structattn.support.errors import DataError
from structattn.support.files import sha256_of_file

__all__ = [
    "PreparedFolder",
    "Sequences",
    "open_prepared",
    "source_entry",
    "verify_prepared",
    "verify_sources",
    "write_prepared",
]


@dataclass(frozen=True)
class Sequences:
    """The sequences of one split, on disk; ``sequences[i]`` is the i-th as int32 ids, without ``<bos>`` and ``<eos>``.

    Args:
        tokens: all sequences one after the other.
        offsets: where each begins, and where the last one ends.
        log_probabilities: log p(w | length of w), for strings drawn from a known distribution.
    """

    tokens: Int32[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " offsets"]
    log_probabilities: Float64[np.ndarray, " sequences"] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int32[np.ndarray, " length"]:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> Int64[np.ndarray, " sequences"]:
        """The number of tokens of each sequence."""
        return np.diff(self.offsets)

    @property
    def token_count(self) -> int:
        """The number of tokens, ``<eos>`` not counted."""
        return len(self.tokens)

    @property
    def target_count(self) -> int:
        """The number of symbols that a language model predicts: the tokens, and an ``<eos>`` for each sequence."""
        return len(self.tokens) + len(self)

    @cached_property
    def _ends(self) -> Int64[np.ndarray, " offsets"]:
        return self.offsets + np.arange(len(self.offsets))

    def stream(self, start: int, stop: int) -> Int32[np.ndarray, " symbols"]:
        """Positions ``start`` to ``stop`` of ``<eos> sequence 0 <eos> sequence 1 <eos> ...``.

        The whole has ``target_count + 1`` positions. Cost: proportional to the positions asked for.
        """
        start, stop, _ = slice(start, stop).indices(self.target_count + 1)
        first, last = np.searchsorted(self._ends, (start, max(start, stop)))
        window = np.full(max(stop - start, 0), EOS, dtype=np.int32)
        is_token = np.ones(len(window), dtype=bool)
        is_token[self._ends[first:last] - start] = False
        window[is_token] = self.tokens[start - first : max(start, stop) - last]
        return window


@dataclass(frozen=True)
class PreparedFolder:
    """An opened prepared folder.

    Args:
        path: the folder.
        header: what it says of itself.
        digest: the SHA-256 of ``header.json``, which holds the digest of every other file.
        vocabulary: the numbering of its symbols.
    """

    path: Path
    header: Header
    digest: str
    vocabulary: Vocabulary

    @property
    def kind(self) -> str:
        """``formal_language``, ``sentences``, ``stream`` or ``transduction``."""
        return self.header.kind

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in the order in which they were written."""
        return tuple(self.header.splits)

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns lines into the folder's ids and back."""
        return Tokenizer(self.header.tokenizer["level"], self.vocabulary)

    def split(self, name: str) -> Sequences:
        """The sequences of a split, memory-mapped.

        Raises:
            DataError: there is no such split, or its files do not fit together.
        """
        if name not in self.header.splits:
            raise DataError(self.path, f"has no split {name!r}, only {', '.join(self.splits)}")
        counts, folder = self.header.splits[name], self.path / name
        sequences = Sequences(
            _mapped(folder, TOKENS, counts.tokens),
            _mapped(folder, OFFSETS, counts.sequences + 1),
            _mapped(folder, LOG_PROBABILITIES, counts.sequences)
            if f"{name}/{LOG_PROBABILITIES.name}" in self.header.files
            else None,
        )
        _check_offsets(sequences, folder / OFFSETS.name)
        return sequences


def _mapped(folder: Path, array: StoredArray, count: int) -> NDArray[Any]:
    path, promised = folder / array.name, count * array.dtype.itemsize
    try:
        size = path.stat().st_size
        if size != promised:
            raise DataError(path, f"has {size} bytes where its header promises {promised}")
        if count == 0:
            return np.empty(0, array.dtype)  # an empty file cannot be mapped
        return np.asarray(np.memmap(path, array.dtype, mode="r"))
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None


def _check_offsets(sequences: Sequences, path: Path) -> None:
    offsets = sequences.offsets
    if offsets[0] != 0 or offsets[-1] != sequences.token_count or bool((sequences.lengths < 0).any()):
        raise DataError(path, f"damaged: offsets should rise from 0 to {sequences.token_count}")


def open_prepared(folder: Path, *, verify: bool = False) -> PreparedFolder:
    """Open a prepared folder.

    Its header and vocabulary are read and checked, and the sizes of the other files; ``verify`` reads those files too
    and compares their digests. Nothing that is read can run code.

    Raises:
        DataError: the folder is missing, damaged, or of another format version.
    """
    folder = Path(folder)
    header, digest = read_header(folder)
    vocabulary = Vocabulary.load(folder / VOCABULARY_NAME)
    _check_vocabulary(folder, header, vocabulary)
    prepared = PreparedFolder(folder, header, digest, vocabulary)
    for name in prepared.splits:
        prepared.split(name)
    if verify:
        verify_prepared(prepared)
    return prepared


def _check_vocabulary(folder: Path, header: Header, vocabulary: Vocabulary) -> None:
    path, level = folder / VOCABULARY_NAME, header.tokenizer.get("level")
    try:
        level_named(level)
    except ValueError as error:
        raise DataError(folder / HEADER_NAME, f"tokenizer: {error}") from None
    expected, found = header.tokenizer.get("digest"), tokenizer_digest(str(level), vocabulary)
    if found != expected or vocabulary.size != header.vocabulary_size:
        raise DataError(path, f"changed since it was written: the tokenizer's digest was {expected} and is {found}")


def verify_prepared(prepared: PreparedFolder) -> None:
    """Compare the digest of every file with the header's. Cost: reads everything, about 1 GB a second.

    Raises:
        DataError: a file is missing or has changed; the message gives both digests.
    """
    for name, expected in prepared.header.files.items():
        _compare_digest(prepared.path / name, expected, "it was written")


def verify_sources(prepared: PreparedFolder) -> tuple[str, ...]:
    """Compare the files that the folder was made from with what they were then.

    Returns:
        The sources that are not there any more: a prepared folder may be used far from its sources.

    Raises:
        DataError: a source has changed; the message gives both digests.
    """
    missing = []
    for source in prepared.header.sources:
        path = Path(os.path.normpath(prepared.path.resolve() / source.path))
        if path.exists():
            _compare_digest(path, source.sha256, f"{prepared.path} was prepared from it")
        else:
            missing.append(str(path))
    return tuple(missing)


def _compare_digest(path: Path, expected: str, since: str) -> None:
    try:
        found = sha256_of_file(path)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None
    if found != expected:
        raise DataError(path, f"changed since {since}: its SHA-256 was {expected} and is {found}")
