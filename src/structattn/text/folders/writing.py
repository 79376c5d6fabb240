"""Atomic writing of prepared folders, without holding a split in memory."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structattn.support.errors import DataError, described, explained
from structattn.support.files import (
    check_writable_folder,
    create_folder,
    create_folder_unflushed,
    is_empty_folder,
    open_unflushed,
    path_from,
    sha256_of_file,
    write_folder_atomically,
    write_unflushed,
)
from structattn.support.shapes import Float64, Int32, Int64
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.text.folders.header import (
    EDITS,
    HEADER_NAME,
    LOG_PROBABILITIES,
    OFFSETS,
    SPLIT_NAME,
    TOKENS,
    TREES,
    Counts,
    Header,
    Kind,
    Source,
    StoredArray,
)
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.reading import check_readable
from structattn.text.tokenization.encoding import EncodedLines
from structattn.text.tokenization.tokenizers import SymbolTokenizer
from structattn.text.tokenization.vocabulary import Vocabulary

_FLUSH_AT = 1 << 20  # tokens buffered before they are written

Ids = Sequence[int] | NDArray[Any]


def write_prepared(
    folder: str | PathLike[str],
    *,
    kind: Kind,
    vocabulary: Vocabulary,
    tokenizer: Mapping[str, Any],
    splits: Mapping[str, Iterable[Ids]],
    sources: Sequence[Mapping[str, str]] = (),
    log_probabilities: Mapping[str, Float64[np.ndarray, " sequences"]] | None = None,
    edits: Mapping[str, Int64[np.ndarray, " sequences"]] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a prepared folder atomically; equal arguments give equal bytes.

    Args:
        folder: must not exist, or be empty.
        kind: ``formal_language``, ``sentences``, ``stream``, ``transduction`` or ``recognition``.
        vocabulary: the symbols and their ids.
        tokenizer: JSON with the ``level`` (``word``, ``character`` or ``byte``); the digest is added.
        splits: maps names of splits to sequences of ids, without ``<bos>`` and ``<eos>``. Each is iterated over once,
            in the order given.
        sources: the ``source_entry`` of each file that was read.
        log_probabilities: maps names of splits to log p(w | length of w) of each sequence.
        edits: for recognition, maps names of splits to where each string comes from: -1 for a member of the language, 0
            for a negative that was drawn uniformly, otherwise the number of edits of a member that made it.
        extra: JSON, stored unchanged.

    Raises:
        DataError: the folder is not empty, or cannot be written; then nothing is left on disk.
        ValueError: an id is outside the vocabulary or is a control symbol, or the counts do not agree.
    """
    symbols = SymbolTokenizer(tokenizer.get("level"), vocabulary)  # type: ignore[arg-type]  # checks the level
    write_tokenized(
        Path(folder),
        kind=kind,
        tokenizer=TextTokenizer(symbols, None),
        description=tokenizer,
        splits=splits,
        sources=sources,
        log_probabilities=log_probabilities,
        edits=edits,
        extra=lambda: extra or {},
    )


def write_tokenized(
    folder: Path,
    *,
    kind: Kind,
    tokenizer: TextTokenizer,
    description: Mapping[str, Any],
    splits: Mapping[str, Iterable[Ids | EncodedLines]],
    sources: Sequence[Mapping[str, str]] = (),
    log_probabilities: Mapping[str, Float64[np.ndarray, " sequences"]] | None = None,
    edits: Mapping[str, Int64[np.ndarray, " sequences"]] | None = None,
    trees: Mapping[str, Int64[np.ndarray, " tokens"]] | None = None,
    extra: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Write a prepared folder atomically, as ``write_prepared``, with any tokenizer of text.

    Args:
        folder: must not exist, or be empty.
        kind: see ``write_prepared``.
        tokenizer: encodes text; its files are written, too.
        description: JSON that describes the tokenizer, with its ``level``; the digest is added.
        splits: maps names of splits to sequences, one by one or many at once.
        sources: see ``write_prepared``.
        log_probabilities: see ``write_prepared``.
        edits: see ``write_prepared``.
        trees: maps names of splits to the binary trees of their sequences: for each token, the rank, from 1 at the
            root, at which a tree is split after it, each span before those inside; 0 within words and at the end.
        extra: returns JSON, stored unchanged; called after all sequences are written.

    Raises:
        DataError, ValueError: see ``write_prepared``.
    """
    given = {LOG_PROBABILITIES: log_probabilities or {}, EDITS: edits or {}, TREES: trees or {}}
    for array, of_splits in given.items():
        _check_names(splits, of_splits, array)
    with new_prepared_folder(folder) as temporary:
        tokenizer.save(temporary)
        size = tokenizer.vocabulary.size
        counts = {
            name: _write_split(
                temporary / name,
                name,
                sequences,
                size,
                {array: of_splits[name] for array, of_splits in given.items() if name in of_splits},
            )
            for name, sequences in splits.items()
        }
        full_description = {**description, "digest": tokenizer.digest}
        write_header(temporary, kind, full_description, size, sources, counts, extra())


@contextmanager
def new_prepared_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder that takes the place of ``folder`` at the end; after an error nothing is left on disk.

    Raises:
        DataError: the folder is not empty, or cannot be written.
    """
    require_empty_folder(folder)
    try:
        create_folder(folder.parent)
        with write_folder_atomically(folder) as temporary:
            yield temporary
    except OSError as error:
        raise DataError(folder, f"cannot be written; nothing was kept: {explained(error)}") from error


def write_header(
    folder: Path,
    kind: Kind,
    tokenizer: Mapping[str, Any],
    vocabulary_size: int,
    sources: Sequence[Mapping[str, str]],
    splits: Mapping[str, Counts],
    extra: Mapping[str, Any],
) -> None:
    """Write the header of a folder whose other files are complete, with their digests."""
    header = Header(
        kind=kind,
        tokenizer=dict(tokenizer),
        vocabulary_size=vocabulary_size,
        sources=[Source.model_validate(source) for source in sources],
        splits=dict(splits),
        files=_file_digests(folder),
        extra=dict(extra),
    )
    write_unflushed(folder / HEADER_NAME, header.to_json())


def _check_names(splits: Iterable[str], with_values: Iterable[str], array: StoredArray) -> None:
    for name in splits:
        if not re.match(SPLIT_NAME, name):
            raise ValueError(f"{name!r} is not a valid name of a split; expected letters, digits, '-' and '_'")
    unknown = sorted(set(with_values) - set(splits))
    if unknown:
        raise ValueError(f"{array.name} has splits {unknown}, which have no sequences")


def require_empty_folder(folder: Path) -> None:
    """Check that ``folder`` does not exist or is empty, so that nothing is overwritten, and can be written.

    Raises:
        DataError: ``folder`` is a file, a folder that is not empty, or cannot be created.
    """
    if folder.is_dir():
        if not is_empty_folder(folder):
            raise DataError(folder, "exists and is not empty; remove it, or prepare into another folder")
    elif folder.exists() or folder.is_symlink():
        raise DataError(folder, "exists and is not a folder")
    try:
        check_writable_folder(folder)
    except OSError as error:
        raise DataError(folder, f"cannot be written: {described(error)}") from None


def source_entry(path: Path, split: str, folder: Path) -> dict[str, str]:
    """Return the header's entry for a source file, with its path relative to the prepared folder.

    A relative path keeps the header, and so its digest, the same when a project is moved or cloned.

    Raises:
        DataError: the file cannot be read, or its path is not UTF-8.
    """
    check_readable(path)
    return {"path": path_in_header(path, folder), "sha256": sha256_of_file(path), "split": split}


def path_in_header(path: Path, folder: Path) -> str:
    """Return the path of a source relative to the prepared folder.

    Raises:
        DataError: it is not UTF-8.
    """
    relative = path_from(folder, path)
    try:
        relative.encode()
    except UnicodeEncodeError:
        raise DataError(path, f"the path is not UTF-8, so {HEADER_NAME} cannot contain it") from None
    return relative


def _write_split(
    folder: Path,
    name: str,
    sequences: Iterable[Ids | EncodedLines],
    size: int,
    arrays: Mapping[StoredArray, NDArray[Any]],
) -> Counts:
    with SequenceWriter(folder, f"split {name!r}", size) as writer:
        for sequence in sequences:
            if isinstance(sequence, EncodedLines):
                writer.add_lines(sequence)
            else:
                writer.add(sequence)
    counts = writer.counts
    for array, values in arrays.items():
        size, unit = (counts.tokens, "tokens") if array is TREES else (counts.sequences, "sequences")
        if values.shape != (size,):
            raise ValueError(f"split {name!r}: {size} {unit}, but {array.name} of shape {values.shape}")
        write_unflushed(folder / array.name, values.astype(array.dtype).tobytes())
    return counts


class SequenceWriter:
    """Writes ``tokens.bin`` and ``offsets.bin`` incrementally, buffering at most a few MB."""

    def __init__(self, folder: Path, name: str, size: int) -> None:
        create_folder_unflushed(folder)
        self._folder, self._name, self._size = folder, name, size
        self._buffer: list[Int32[np.ndarray, " length"]] = []
        self._buffered = self._tokens = self._count = 0

    def __enter__(self) -> "SequenceWriter":
        with ExitStack() as stack:
            self._token_file = stack.enter_context(open_unflushed(self._folder / TOKENS.name))
            self._offset_file = stack.enter_context(open_unflushed(self._folder / OFFSETS.name))
            self._files = stack.pop_all()
        self._offset_file.write(np.zeros(1, OFFSETS.dtype).tobytes())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._files:
            if kind is None:
                self._flush()

    @property
    def counts(self) -> Counts:
        """How much was written; complete only after the ``with`` statement."""
        return Counts(sequences=self._count, tokens=self._tokens)

    def add(self, sequence: Ids) -> None:
        """Write one sequence.

        Raises:
            ValueError: an id is outside the vocabulary or is a control symbol.
        """
        ids = np.asarray(sequence, dtype=np.int64)
        if ids.ndim != 1:
            where = f"{self._name}, sequence {self._count + len(self._buffer)}"
            raise ValueError(f"{where}: shape {ids.shape}; expected a sequence")
        self._check_ids(ids, np.array([len(ids)]))
        self._buffer.append(ids.astype(TOKENS.dtype))
        self._buffered += len(ids) + 1  # + 1 bounds the number of empty sequences in the buffer
        if self._buffered >= _FLUSH_AT:
            self._flush()

    def add_lines(self, lines: EncodedLines) -> None:
        """Write many sequences.

        Raises:
            ValueError: an id is outside the vocabulary or is a control symbol.
        """
        self._flush()
        self._check_ids(lines.tokens, lines.lengths)
        self._write(lines.tokens, lines.lengths)

    def _check_ids(self, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        outside = np.flatnonzero((ids < FIRST_SYMBOL) | (ids >= self._size))
        if len(outside):
            sequence = self._count + len(self._buffer) + int(np.searchsorted(np.cumsum(lengths), outside[0], "right"))
            expected = f"expected ids {FIRST_SYMBOL} to {self._size - 1}"
            raise ValueError(f"{self._name}, sequence {sequence}: id {ids[outside[0]]}; {expected}")

    def _flush(self) -> None:
        if self._buffer:
            self._write(np.concatenate(self._buffer), np.array([len(sequence) for sequence in self._buffer]))
            self._buffer, self._buffered = [], 0

    def _write(self, tokens: NDArray[Any], lengths: NDArray[Any]) -> None:
        ends = self._tokens + np.cumsum(lengths)
        self._token_file.write(tokens.astype(TOKENS.dtype, copy=False).tobytes())
        self._offset_file.write(ends.astype(OFFSETS.dtype).tobytes())
        self._tokens, self._count = self._tokens + len(tokens), self._count + len(lengths)


def _file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in files}
