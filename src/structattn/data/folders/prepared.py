"""Prepared folders: numbered sequences, memory-mapped, with all that is needed to trust them.

header.json                     see header.py
vocabulary.txt                  one symbol a line
SPLIT/tokens.bin                int32, little endian: all sequences one after the other, no <bos>, no <eos>
SPLIT/offsets.bin               int64: sequence i is tokens[offsets[i]:offsets[i + 1]]
SPLIT/log_probabilities.bin     float64, optional: log p(w | length of w) of each sequence

Parallel text has, besides, where these are the target's:

source_vocabulary.txt           that of the source, where the sides have each their own
subwords.json                   merges of byte pairs; subwords.model for SentencePiece; source_... where separate
kept.json                       the ids that may come out on each side, where not all may
SPLIT/source/                   tokens.bin and offsets.bin of the source
SPLIT/lines.bin                 int64: the line that each pair had in the files, from 1
SPLIT/source.txt, target.txt    the normalised lines, for all splits but train

and, where symbols are words, unless an earlier release wrote it:

characters.txt                  the characters that words are spelt in; source_characters.txt where separate
rare_words.txt, SPLIT/rare.bin  the words that are <unk>, see rare_words.py
"""

import os
from dataclasses import dataclass
from pathlib import Path

from structattn.data.folders.header import (
    HEADER_NAME,
    LINES,
    LOG_PROBABILITIES,
    VOCABULARY_NAME,
    Counts,
    Header,
    read_header,
)
from structattn.data.folders.pairs import Pairs
from structattn.data.folders.rare_words import rare_words_of
from structattn.data.folders.sequences import Sequences, mapped_array, mapped_sequences
from structattn.data.folders.writing import STANDARD_INPUT, source_entry, write_prepared
from structattn.data.parallel.parallel_side import SideName, Sides, load_sides
from structattn.data.tokenization.tokenizers import Tokenizer, level_named
from structattn.data.tokenization.vocabulary import Vocabulary, tokenizer_digest
from structattn.support.errors import DataError
from structattn.support.files import sha256_of_file

__all__ = [
    "Pairs",
    "PreparedFolder",
    "Sequences",
    "open_prepared",
    "source_entry",
    "verify_prepared",
    "verify_sources",
    "write_prepared",
]


@dataclass(frozen=True)
class PreparedFolder:
    """An opened prepared folder.

    Args:
        path: the folder.
        header: what it says of itself.
        digest: the SHA-256 of ``header.json``, which holds the digest of every other file.
        vocabulary: the numbering of its symbols; of parallel text, those of the target.
        languages: how lines of parallel text become ids, and back; None for all else.
    """

    path: Path
    header: Header
    digest: str
    vocabulary: Vocabulary
    languages: Sides | None = None

    @property
    def kind(self) -> str:
        """``formal_language``, ``sentences``, ``stream``, ``transduction`` or ``parallel``."""
        return self.header.kind

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in the order in which they were written."""
        return tuple(self.header.splits)

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns lines into the folder's ids and back.

        Raises:
            DataError: it holds parallel text, of which each side has its own: see ``sides``.
        """
        if self.languages is not None:
            raise DataError(self.path, "holds parallel text, which has a tokenizer for each side")
        return Tokenizer(self.header.tokenizer["level"], self.vocabulary)

    def split(self, name: str) -> Sequences:
        """The sequences of a split, memory-mapped; of parallel text, the target sides.

        Raises:
            DataError: there is no such split, or its files do not fit together.
        """
        counts, folder = self._counts(name), self.path / name
        has_probabilities = f"{name}/{LOG_PROBABILITIES.name}" in self.header.files
        probabilities = mapped_array(folder, LOG_PROBABILITIES, counts.sequences) if has_probabilities else None
        return mapped_sequences(folder, counts.sequences, counts.tokens, probabilities)

    @property
    def sides(self) -> Sides:
        """How the lines of parallel text become ids, and back.

        Raises:
            DataError: the folder holds something else.
        """
        if self.languages is None:
            raise _not_parallel(self)
        return self.languages

    @property
    def length_ratio(self) -> float:
        """Source tokens for each target token of the training pairs, ``<eos>`` not counted.

        Raises:
            DataError: the folder holds something else, or does not say.
        """
        if self.languages is None:
            raise _not_parallel(self)
        return _source_tokens(self, "train") / max(1, self._counts("train").tokens)

    def pairs(self, name: str) -> Pairs:
        """The pairs of a split of parallel text, memory-mapped.

        Raises:
            DataError: the folder holds something else, there is no such split, or its files do not fit together.
        """
        if self.languages is None:
            raise _not_parallel(self)
        counts, folder = self._counts(name), self.path / name
        source = mapped_sequences(folder / "source", counts.sequences, _source_tokens(self, name))
        target, lines = self.split(name), mapped_array(folder, LINES, counts.sequences)
        return Pairs(
            source, target, lines, rare_words_of(self.path, self.header, self.languages, name, (source, target))
        )

    def texts(self, name: str, side: SideName) -> tuple[str, ...]:
        """The normalised lines of one side of a split, those of the pairs that were kept; not there for ``train``.

        Raises:
            DataError: there are none, or not as many as there are pairs.
        """
        path, expected = self.path / name / f"{side}.txt", self._counts(name).sequences
        try:
            *lines, _ = path.read_bytes().decode().split("\n")
        except OSError as error:
            raise DataError(path, f"cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise DataError(path, f"damaged: {error}") from None
        if len(lines) != expected:
            raise DataError(path, f"has {len(lines)} lines where its header promises {expected}")
        return tuple(lines)

    def _counts(self, name: str) -> Counts:
        if name not in self.header.splits:
            raise DataError(self.path, f"has no split {name!r}, only {', '.join(self.splits)}")
        return self.header.splits[name]


def _not_parallel(prepared: PreparedFolder) -> DataError:
    return DataError(prepared.path, f"holds data of kind {prepared.kind!r}; expected parallel text")


def _source_tokens(prepared: PreparedFolder, name: str) -> int:
    counts = prepared.header.extra.get("source_tokens")
    count = counts.get(name) if isinstance(counts, dict) else None
    if not isinstance(count, int) or count < 0:
        raise DataError(prepared.path / HEADER_NAME, f"does not say how many source tokens {name!r} has")
    return count


def open_prepared(folder: Path, *, verify: bool = False) -> PreparedFolder:
    """Open a prepared folder.

    Its header and vocabulary are read and checked, and the sizes of the other files; ``verify`` reads those files too
    and compares their digests. Nothing that is read can run code.

    Raises:
        DataError: the folder is missing, damaged, or of another format version.
    """
    folder = Path(folder)
    header, digest = read_header(folder)
    prepared = (
        _opened_parallel(folder, header, digest) if header.kind == "parallel" else _opened(folder, header, digest)
    )
    for name in prepared.splits:
        prepared.split(name) if prepared.languages is None else prepared.pairs(name)
    if verify:
        verify_prepared(prepared)
    return prepared


def _opened(folder: Path, header: Header, digest: str) -> PreparedFolder:
    vocabulary = Vocabulary.load(folder / VOCABULARY_NAME)
    _check_vocabulary(folder, header, vocabulary)
    return PreparedFolder(folder, header, digest, vocabulary)


def _opened_parallel(folder: Path, header: Header, digest: str) -> PreparedFolder:
    sides = load_sides(folder, header.tokenizer)
    if sides.target.vocabulary.size != header.vocabulary_size:
        raise DataError(folder / HEADER_NAME, f"its vocabulary has {sides.target.vocabulary.size} symbols")
    return PreparedFolder(folder, header, digest, sides.target.vocabulary, sides)


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
        if source.path == STANDARD_INPUT:
            continue
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
