"""Strict reading of pairs of lines: pair i is line i of the files, whatever was dropped before it.

| input                                        | outcome                                                        |
|----------------------------------------------|----------------------------------------------------------------|
| what ``text.reading`` refuses                | refused with file, line and byte column                        |
| one file has more lines than the other       | refused at the first line without a counterpart                |
| a line of a TSV without exactly one tab      | refused with the line and the column of the second tab or end  |
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from structattn.support.errors import DataError, UsageError
from structattn.support.files import open_unflushed, sha256_of_file, temporary_folder
from structattn.text.folders.header import STANDARD_INPUT
from structattn.text.folders.writing import source_entry
from structattn.text.reading import Line, Notices, read_lines

_INPUT_NAME: Final = Path("standard input")


class Text(NamedTuple):
    """One side of a pair: its text, file, line counted from 1, and the number of bytes of the line before it."""

    text: str
    path: Path
    line: int
    bytes_before: int


class RawPair(NamedTuple):
    """A pair as in the files; ``number`` is its line, counted from 1."""

    number: int
    source: Text
    target: Text


PairReader = Callable[[Path, Notices], Iterator[RawPair]]
"""Reads the pairs of one file."""


@dataclass(frozen=True)
class PairFiles:
    """The files of a split.

    Args:
        source: a file of source lines; without ``target`` a TSV, source TAB target, or what ``reader`` reads.
        target: a file of as many target lines.
        name: the name of ``source`` in messages, by default its path.
        reader: reads the pairs from ``source``, where that is in a form of its own.
    """

    source: Path
    target: Path | None = None
    name: Path | None = None
    reader: PairReader | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return (self.source,) if self.target is None else (self.source, self.target)

    @property
    def shown(self) -> Path:
        """The name of the first file in messages."""
        return self.source if self.name is None else self.name

    def entries(self, split: str, folder: Path) -> list[dict[str, str]]:
        """Return the header's entries for the files.

        Raises:
            DataError: a file cannot be read, or its path is not UTF-8.
        """
        if self.name is not None:
            return [{"path": STANDARD_INPUT, "sha256": sha256_of_file(self.source), "split": split}]
        return [source_entry(path, split, folder) for path in self.paths]

    def check_unchanged(self, entries: Sequence[Mapping[str, str]]) -> None:
        """Compare the files with their entries.

        Raises:
            DataError: a file has changed.
        """
        for path, entry in zip(self.paths, entries, strict=True):
            if sha256_of_file(path) != entry["sha256"]:
                raise DataError(path, "changed while it was being prepared")


def read_pairs(files: PairFiles, notices: Notices) -> Iterator[RawPair]:
    """Read pairs one by one.

    Cost: time linear in the number of bytes, memory of the longest pair.

    Raises:
        DataError: see the table above.
    """
    if files.reader is not None:
        return files.reader(files.source, notices)
    if files.target is None:
        return _read_tsv(files.source, files.shown, notices)
    return _read_two_files(files.source, files.target, notices)


def _read_two_files(source: Path, target: Path, notices: Notices) -> Iterator[RawPair]:
    for left, right in zip_longest(read_lines(source, notices), read_lines(target, notices)):
        if left is None or right is None:
            longer, shorter, line = (target, source, right) if left is None else (source, target, left)
            reason = f"has no counterpart: {shorter} ends after {line.number - 1} lines; expected equally many lines"
            raise DataError(longer, reason, line.number, 1)
        yield RawPair(left.number, _text(left, source), _text(right, target))


def _text(line: Line, path: Path) -> Text:
    return Text(line.text, path, line.number, line.skipped_bytes)


def _read_tsv(path: Path, shown: Path, notices: Notices) -> Iterator[RawPair]:
    for line in read_lines(path, notices, shown):
        source, *rest = line.text.split("\t")
        if len(rest) != 1:
            column = line.skipped_bytes + len("\t".join((source, *rest[:1])).encode()) + 1
            expected = "expected one, between source and target"
            raise DataError(shown, f"{len(rest)} tabs in a line; {expected}", line.number, column)
        before = line.skipped_bytes + len(source.encode()) + 1
        yield RawPair(
            line.number, Text(source, shown, line.number, line.skipped_bytes), Text(rest[0], shown, line.number, before)
        )


@contextmanager
def open_pair_files(
    splits: Mapping[str, Sequence[Path]], beside: Path, reader: PairReader | None = None
) -> Iterator[dict[str, PairFiles]]:
    """Find the files of each split; standard input is copied to a temporary file, because it is read twice.

    Args:
        splits: maps names of splits to two files, source and target, or one TSV; ``-`` is a TSV on standard input.
        beside: the copy is created next to this path, where the prepared folder needs the space in any case.
        reader: reads the pairs of one file for each split instead.

    Raises:
        UsageError: another number of files, or standard input for two splits or for a reader.
    """
    splits = {name: tuple(map(Path, paths)) for name, paths in splits.items()}
    if reader is not None:
        yield {name: _file_of(name, paths, reader) for name, paths in splits.items()}
        return
    for name, paths in splits.items():
        if len(paths) not in {1, 2}:
            raise UsageError(f"{name}: {len(paths)} files; expected source and target, or one TSV")
        if len(paths) == 2 and Path(STANDARD_INPUT) in paths:
            raise UsageError(f"{name}: standard input holds pairs, source TAB target; it cannot be one side")
    given = [name for name, paths in splits.items() if paths == (Path(STANDARD_INPUT),)]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: standard input can be used for one split only")
    files = {name: PairFiles(paths[0], next(iter(paths[1:]), None)) for name, paths in splits.items()}
    if not given:
        yield files
        return
    with temporary_folder(beside) as folder:
        copy = folder / "input.tsv"
        with open_unflushed(copy) as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield {**files, given[0]: PairFiles(copy, name=_INPUT_NAME)}


def _file_of(name: str, paths: Sequence[Path], reader: PairReader) -> PairFiles:
    if len(paths) != 1 or paths[0] == Path(STANDARD_INPUT):
        raise UsageError(f"{name}: {', '.join(map(str, paths))}; expected one file")
    return PairFiles(paths[0], reader=reader)
