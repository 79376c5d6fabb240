"""Reading of contrastive pairs: LingEval97's JSON, or folders of aligned files, as in DistilLingEval.

Aligned files are in a folder named after the type of error:

| input                                     | outcome                                            |
|-------------------------------------------|----------------------------------------------------|
| what ``data.text.reading`` refuses        | refused with file, line and byte column            |
| a blank line                              | refused with file and line                         |
| files with unequal numbers of lines       | refused at the first line without its counterparts |
| no file, or several, of a name            | refused                                            |
"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from structattn.support.errors import DataError
from structattn.tasks.translation.contrast import Contrast
from structattn.tasks.translation.lingeval97 import read_lingeval97
from structattn.text.reading import Line, Notices, read_lines

NAMES = ("src", "tgt.correct", "tgt.incorrect")


def read_contrasts(path: Path, notices: Notices) -> list[Contrast]:
    """Read contrastive pairs.

    Args:
        path: a JSON file in LingEval97's format; or a folder of aligned files ``src.*``, ``tgt.correct.*`` and
            ``tgt.incorrect.*``; or a folder of such folders. ``.gz`` is decompressed.
        notices: collects notices of reading.

    Raises:
        DataError: something is missing or malformed; the message gives file, line and reason.
    """
    if not path.is_dir():
        return read_lingeval97(path, notices)
    folders = [path] if _is_aligned(path) else sorted(filter(_is_aligned, path.iterdir()))
    if not folders:
        raise DataError(path, "has no files src.*, tgt.correct.* and tgt.incorrect.*, nor folders with such files")
    return [contrast for folder in folders for contrast in _read_aligned(folder, notices)]


def _is_aligned(folder: Path) -> bool:
    """Return whether a path is a folder with at least one of the aligned files."""
    return folder.is_dir() and any(any(folder.glob(f"{name}.*")) for name in NAMES)


def _read_aligned(folder: Path, notices: Notices) -> Iterator[Contrast]:
    paths = [_find_file(folder, name) for name in NAMES]
    for rows in zip_longest(*(read_lines(path, notices) for path in paths)):
        source, reference, contrastive = _texts(paths, rows)
        line = next(row.number for row in rows if row is not None)
        yield Contrast(source, reference, contrastive, folder.resolve().name, None, paths[0], line)


def _find_file(folder: Path, name: str) -> Path:
    found = sorted(folder.glob(f"{name}.*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise DataError(folder, f"expected one file {name}.*, found {names}")
    return found[0]


def _texts(paths: list[Path], rows: tuple[Line | None, ...]) -> list[str]:
    lines = [(path, row) for path, row in zip(paths, rows, strict=True) if row is not None]
    if len(lines) < len(rows):
        short = next(path for path, row in zip(paths, rows, strict=True) if row is None)
        path, row = lines[0]
        raise DataError(path, f"has no counterpart: {short} ends after {row.number - 1} lines", row.number)
    for path, row in lines:
        if not row.text.strip():
            raise DataError(path, "a blank line; expected a sentence", row.number)
    return [row.text for _, row in lines]
