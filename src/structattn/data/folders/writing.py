"""Writes a prepared folder, whole or not at all, without holding a split in memory."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32
from numpy.typing import NDArray

from structattn.data.folders.header import (
    HEADER_NAME,
    LOG_PROBABILITIES,
    OFFSETS,
    SPLIT_NAME,
    TOKENS,
    VOCABULARY_NAME,
    Counts,
    Header,
    Kind,
    Source,
)
from structattn.data.text.reading import check_readable
from structattn.data.tokenization.tokenizers import level_named
from structattn.data.tokenization.vocabulary import Vocabulary, tokenizer_digest
from structattn.support.errors import DataError
from structattn.support.files import folder_written_whole, sha256_of_file
from structattn.support.special_tokens import FIRST_SYMBOL

STANDARD_INPUT = "-"
"""Where the header names a source that was no file and cannot be looked at again."""

_FLUSH_AT = 1 << 20  # tokens gathered before they are written

Ids = Sequence[int] | NDArray[Any]


def write_prepared(
    folder: Path,
    *,
    kind: Kind,
    vocabulary: Vocabulary,
    tokenizer: Mapping[str, Any],
    splits: Mapping[str, Iterable[Ids]],
    sources: Sequence[Mapping[str, str]] = (),
    log_probabilities: Mapping[str, Float64[np.ndarray, " sequences"]] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a prepared folder; the same arguments give the same bytes.

    Args:
        folder: must not exist, or be empty.
        kind: ``formal_language``, ``sentences`` or ``stream``.
        vocabulary: the numbering of the symbols.
        tokenizer: JSON; its ``level`` (``word``, ``character`` or ``byte``) says how a line is cut into symbols. The
            digest is added.
        splits: for each name its sequences of ids, without ``<bos>`` and ``<eos>``. Each is walked through once, in
            the order given.
        sources: for each file that was read what ``source_entry`` gives.
        log_probabilities: for a split log p(w | length of w) of each of its sequences.
        extra: JSON; kept as it is.

    Raises:
        DataError: the folder holds something already, or cannot be written. Nothing is left behind then.
        ValueError: an id is outside the vocabulary or belongs to a control symbol, or the counts do not agree.
    """
    level_named(tokenizer.get("level"))
    given = log_probabilities or {}
    _check_names(splits, given)
    refuse_occupied(folder)
    try:
        with folder_written_whole(folder) as temporary:
            vocabulary.save(temporary / VOCABULARY_NAME)
            counts = {
                name: _write_split(temporary / name, name, sequences, vocabulary.size, given.get(name))
                for name, sequences in splits.items()
            }
            header = Header(
                kind=kind,
                tokenizer={**tokenizer, "digest": tokenizer_digest(tokenizer["level"], vocabulary)},
                vocabulary_size=vocabulary.size,
                sources=[Source.model_validate(source) for source in sources],
                splits=counts,
                files=digests_of(temporary),
                extra=dict(extra or {}),
            )
            (temporary / HEADER_NAME).write_bytes(header.to_json())
    except OSError as error:
        raise DataError(folder, f"cannot be written, nothing was kept: {error.strerror or error}") from error


def _check_names(splits: Iterable[str], with_probabilities: Iterable[str]) -> None:
    for name in splits:
        if not re.match(SPLIT_NAME, name):
            raise ValueError(f"{name!r} cannot name a split; expected letters, digits, '-' and '_'")
    unknown = sorted(set(with_probabilities) - set(splits))
    if unknown:
        raise ValueError(f"log_probabilities has splits {unknown}, of which there are no sequences")


def refuse_occupied(folder: Path) -> None:
    """Check that nothing would be overwritten.

    Raises:
        DataError: ``folder`` is a file, or a folder that is not empty.
    """
    if folder.is_dir():
        if any(folder.iterdir()):
            raise DataError(folder, "exists and is not empty; remove it, or prepare into another folder")
    elif folder.exists() or folder.is_symlink():
        raise DataError(folder, "exists and is not a folder")


def source_entry(path: Path, split: str, folder: Path) -> dict[str, str]:
    """A source as the header describes it, its path relative to the prepared folder.

    Relative, so that a project that is moved or cloned elsewhere gives the same header, and so the same digest.

    Raises:
        DataError: the file cannot be read.
    """
    check_readable(path)
    relative = os.path.relpath(path.resolve(), folder.resolve())
    return {"path": Path(relative).as_posix(), "sha256": sha256_of_file(path), "split": split}


def _write_split(
    folder: Path, name: str, sequences: Iterable[Ids], size: int, log_probabilities: NDArray[Any] | None
) -> Counts:
    with SequenceWriter(folder, f"split {name!r}", size) as writer:
        for sequence in sequences:
            writer.add(sequence)
    counts = writer.counts
    if log_probabilities is not None:
        if log_probabilities.shape != (counts.sequences,):
            shape = log_probabilities.shape
            raise ValueError(f"split {name!r}: {counts.sequences} sequences, log probabilities of shape {shape}")
        (folder / LOG_PROBABILITIES.name).write_bytes(log_probabilities.astype(LOG_PROBABILITIES.dtype).tobytes())
    return counts


class SequenceWriter:
    """Writes ``tokens.bin`` and ``offsets.bin`` as sequences come; at most some MB wait in memory.

    Args:
        folder: is made.
        name: what error messages call it.
        size: of the vocabulary.
    """

    def __init__(self, folder: Path, name: str, size: int) -> None:
        folder.mkdir()
        self._folder, self._name, self._size = folder, name, size
        self._group: list[Int32[np.ndarray, " length"]] = []
        self._waiting = self._tokens = self._count = 0

    def __enter__(self) -> "SequenceWriter":
        with ExitStack() as stack:
            self._token_file = stack.enter_context((self._folder / TOKENS.name).open("wb"))
            self._offset_file = stack.enter_context((self._folder / OFFSETS.name).open("wb"))
            self._files = stack.pop_all()
        self._offset_file.write(np.zeros(1, OFFSETS.dtype).tobytes())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._files:
            if kind is None:
                self._flush()

    @property
    def counts(self) -> Counts:
        """How much was written; whole only after the end of the ``with`` statement."""
        return Counts(sequences=self._count, tokens=self._tokens)

    def add(self, sequence: Ids) -> None:
        """Write one sequence more.

        Raises:
            ValueError: an id is outside the vocabulary or belongs to a control symbol.
        """
        ids = np.asarray(sequence, dtype=np.int64)
        outside = ids[(ids < FIRST_SYMBOL) | (ids >= self._size)]
        if ids.ndim != 1 or len(outside):
            found = f"shape {ids.shape}" if ids.ndim != 1 else f"id {outside[0]}"
            place = f"{self._name}, sequence {self._count + len(self._group)}"
            raise ValueError(f"{place}: {found}; expected ids {FIRST_SYMBOL} to {self._size - 1}")
        self._group.append(ids.astype(TOKENS.dtype))
        self._waiting += len(ids) + 1  # so that empty sequences cannot pile up without end
        if self._waiting >= _FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        if not self._group:
            return
        ends = self._tokens + np.cumsum([len(sequence) for sequence in self._group])
        self._token_file.write(np.concatenate(self._group).tobytes())
        self._offset_file.write(ends.astype(OFFSETS.dtype).tobytes())
        self._tokens, self._count = int(ends[-1]), self._count + len(self._group)
        self._group, self._waiting = [], 0


def digests_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in files}
