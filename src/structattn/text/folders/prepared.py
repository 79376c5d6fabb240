"""Opening and verifying prepared folders.

header.json                     see header.py
vocabulary.txt                  one symbol per line
SPLIT/tokens.bin                int32, little endian: the concatenated sequences, without <bos> and <eos>
SPLIT/offsets.bin               int64: sequence i is tokens[offsets[i]:offsets[i + 1]]
SPLIT/log_probabilities.bin     float64, optional: log p(w | length of w) of each sequence
SPLIT/trees.bin                 int32, for sentences with trees: the rank of the split after each token, or 0
SPLIT/edits.bin                 int32, for recognition: -1 for a member, otherwise the edits that made a negative, or 0

For text whose tokens are subwords:

subwords.json                   BPE merges; subwords.model for SentencePiece

For parallel text the files above belong to the target; further files are:

source_vocabulary.txt           vocabulary of the source, if the sides have separate ones
source_subwords...              subwords of the source, if separate
kept.json                       the ids of the pieces used on each side, null for all
SPLIT/source/                   tokens.bin and offsets.bin of the source
SPLIT/lines.bin                 int64: the line number of each pair in the original files, from 1
SPLIT/source.txt, target.txt    the normalized lines, for all splits except train

and at level word:

characters.txt                  the characters of words; source_characters.txt if separate
rare_words.txt, SPLIT/rare.bin  the words that are <unk>, see RareWords
"""

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

import numpy as np

from structattn.support.digest_cache import cached_sha256
from structattn.support.errors import DataError
from structattn.support.reading import MAX_TEXT_BYTES, chunks, content_of, open_regular, read_errors
from structattn.support.shapes import Int32
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.text.folders.header import (
    EDITS,
    HEADER_NAME,
    LINES,
    LOG_PROBABILITIES,
    STANDARD_INPUT,
    TOKENS,
    TREES,
    Counts,
    Header,
    read_header,
)
from structattn.text.folders.parallel import Pairs, ParallelSides, SideName, load_rare_words, load_sides
from structattn.text.folders.sequences import Sequences, map_array, map_sequences
from structattn.text.folders.text_tokenizer import TextTokenizer, load_text_tokenizer
from structattn.text.tokenization.vocabulary import Vocabulary

_BEGINNING: Final = 100_000  # tokens


@dataclass(frozen=True)
class PreparedFolder:
    """An opened prepared folder.

    Args:
        digest: the SHA-256 of ``header.json``, which contains the digest of every other file.
        text_tokenizer: its tokenizer; None for parallel text.
        parallel_sides: the tokenizers of parallel text; None for other kinds.
    """

    path: Path
    header: Header
    digest: str
    text_tokenizer: TextTokenizer | None = None
    parallel_sides: ParallelSides | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary; for parallel text, that of the target."""
        return self.sides.target.vocabulary if self.text_tokenizer is None else self.text_tokenizer.vocabulary

    @property
    def kind(self) -> str:
        """``formal_language``, ``sentences``, ``stream``, ``transduction``, ``recognition`` or ``parallel``."""
        return self.header.kind

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits in the order in which they were written."""
        return tuple(self.header.splits)

    @property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer of the folder.

        Raises:
            DataError: the folder holds parallel text, which has one tokenizer for each side; see ``sides``.
        """
        if self.text_tokenizer is None:
            raise DataError(self.path, "holds parallel text, which has a tokenizer for each side")
        return self.text_tokenizer

    def split(self, name: str) -> Sequences:
        """Return the sequences of a split, memory-mapped; for parallel text, the target sequences.

        Raises:
            DataError: there is no such split, or its files are inconsistent.
        """
        counts, folder = self._counts(name), self.path / name
        has_probabilities = f"{name}/{LOG_PROBABILITIES.name}" in self.header.files
        probabilities = map_array(folder, LOG_PROBABILITIES, counts.sequences) if has_probabilities else None
        return map_sequences(folder, counts.sequences, counts.tokens, probabilities)

    def edits(self, name: str) -> Int32[np.ndarray, " sequences"]:
        """Return where each string of a split for recognition comes from; see ``write_prepared``.

        Raises:
            DataError: the folder holds data of another kind, there is no such split, or its file is inconsistent.
        """
        return map_array(self.path / name, EDITS, self._counts(name).sequences)

    def trees(self, name: str) -> Int32[np.ndarray, " tokens"]:
        """Return the binary trees of the sentences of a split; see ``write_tokenized``.

        Raises:
            DataError: the folder has no trees, there is no such split, or its file is inconsistent.
        """
        counts = self._counts(name)
        if f"{name}/{TREES.name}" not in self.header.files:
            raise DataError(self.path / name, "has no trees; expected sentences of `prepare trees --layout sentences`")
        return map_array(self.path / name, TREES, counts.tokens)

    @property
    def sides(self) -> ParallelSides:
        """The tokenizers of parallel text.

        Raises:
            DataError: the folder holds data of another kind.
        """
        if self.parallel_sides is None:
            raise DataError(self.path, f"holds data of kind {self.kind!r}; expected parallel text")
        return self.parallel_sides

    @property
    def length_ratio(self) -> float:
        """The number of source tokens per target token in the training pairs, not counting ``<eos>``.

        Raises:
            DataError: the folder holds data of another kind, or its header does not state the number.
        """
        self.sides  # noqa: B018  # raises for other kinds
        return _source_tokens(self, "train") / max(1, self._counts("train").tokens)

    def pairs(self, name: str) -> Pairs:
        """Return the pairs of a split of parallel text, memory-mapped.

        Raises:
            DataError: the folder holds data of another kind, there is no such split, or its files are inconsistent.
        """
        sides, counts, folder = self.sides, self._counts(name), self.path / name
        source = map_sequences(folder / "source", counts.sequences, _source_tokens(self, name))
        target, lines = self.split(name), map_array(folder, LINES, counts.sequences)
        rare = load_rare_words(self.path, self.header, sides, name, (source, target))
        return Pairs(source, target, lines, rare)

    def texts(self, name: str, side: SideName) -> tuple[str, ...]:
        """Return the normalized lines of one side of a split; they are not stored for ``train``.

        Raises:
            DataError: there are none, or their number differs from the number of pairs.
        """
        path, expected = self.path / name / f"{side}.txt", self._counts(name).sequences
        if f"{name}/{path.name}" not in self.header.files:
            raise DataError(self.path, f"the text of the split {name!r} is not stored; expected another split")
        try:
            *lines, _ = content_of(path, MAX_TEXT_BYTES).decode().split("\n")
        except UnicodeDecodeError as error:
            raise DataError(path, f"damaged: {error}") from None
        if len(lines) != expected:
            raise DataError(path, f"has {len(lines)} lines; expected {expected} from the header")
        return tuple(lines)

    def beginning(self) -> str:
        """Return the first lines of the training data, of 100,000 tokens, decoded.

        Raises:
            DataError: the folder holds parallel text.
        """
        train = self.split("train")
        count = min(len(train), int(np.searchsorted(train.offsets, _BEGINNING)))
        return "\n".join(self.tokenizer.decode(train[index]) for index in range(count))

    def _counts(self, name: str) -> Counts:
        if name not in self.header.splits:
            raise DataError(self.path, f"has no split {name!r}; it has {', '.join(self.splits)}")
        return self.header.splits[name]


def _source_tokens(prepared: PreparedFolder, name: str) -> int:
    count = prepared.header.count("source_tokens", name)
    if count is None:
        raise DataError(prepared.path / HEADER_NAME, f"does not state the number of source tokens of {name!r}")
    return count


def open_prepared(folder: str | PathLike[str]) -> PreparedFolder:
    """Open a prepared folder and verify the digests of all its files. Opening a folder runs no code.

    Cost: reads all files, at about 1 GB/s; large files that have not changed since the last time are not read again.

    Raises:
        DataError: the folder is missing or damaged, or has another format version.
    """
    folder = Path(folder)
    header, digest = read_header(folder)
    prepared = _open(folder, header, digest)
    for name in prepared.splits:
        if prepared.parallel_sides is not None:
            prepared.pairs(name)  # checks the sizes of the files
            _check_ids(folder / name / "source" / TOKENS.name, prepared.sides.source.vocabulary.size)
        prepared.split(name)
        _check_ids(folder / name / TOKENS.name, prepared.vocabulary.size)
    verify_prepared(prepared)
    return prepared


def _check_ids(path: Path, size: int) -> None:
    """Check the ids of a file in chunks: mapped as a whole, they would stay in memory."""
    with open_regular(path) as file:
        for content in chunks(file, path.stat().st_size):
            ids = np.frombuffer(content, TOKENS.dtype)
            if not FIRST_SYMBOL <= int(ids.min()) <= int(ids.max()) < size:
                raise DataError(path, f"has ids {ids.min()} to {ids.max()}; expected {FIRST_SYMBOL} to {size - 1}")


def _open(folder: Path, header: Header, digest: str) -> PreparedFolder:
    if header.kind == "parallel":
        prepared = PreparedFolder(folder, header, digest, parallel_sides=load_sides(folder, header.tokenizer))
    else:
        prepared = PreparedFolder(folder, header, digest, load_text_tokenizer(folder, header.tokenizer))
    size = prepared.vocabulary.size
    if size != header.vocabulary_size:
        reason = f"vocabulary_size is {header.vocabulary_size}, but the vocabulary has {size} symbols"
        raise DataError(folder / HEADER_NAME, reason)
    return prepared


def verify_prepared(prepared: PreparedFolder) -> None:
    """Compare the digest of every file with the header.

    Raises:
        DataError: a file is missing or has changed; the message gives both digests.
    """
    for name, expected in prepared.header.files.items():
        _compare_digest(prepared.path / name, expected, "it was written")


def verify_sources(prepared: PreparedFolder) -> tuple[str, ...]:
    """Check that the source files have not changed since the folder was prepared.

    Returns:
        The sources that no longer exist: a prepared folder may be used without them.

    Raises:
        DataError: a source has changed; the message gives both digests.
    """
    missing = []
    for source in prepared.header.sources:
        if source.path == STANDARD_INPUT:
            continue
        path = Path(os.path.normpath(prepared.path.resolve() / source.path))
        if path.exists():
            _compare_digest(path, source.sha256, f"{prepared.path} was prepared from it")
        else:
            missing.append(str(path))
    return tuple(missing)


def _compare_digest(path: Path, expected: str, since: str) -> None:
    with read_errors(path):
        present = cached_sha256(path, expected, None if path.suffix == ".bin" else MAX_TEXT_BYTES)  # arrays have a size
    if present != expected:
        raise DataError(path, f"changed since {since}: its SHA-256 was {expected} and is {present}")
