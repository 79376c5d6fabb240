"""Three aligned files in a folder that is named for the type of error, as DistilLingEval has them.

| input                                     | outcome                                            |
|-------------------------------------------|----------------------------------------------------|
| what ``text.py`` refuses                  | refused: file, line, byte column                   |
| a blank line                              | refused: file, line                                |
| files of unequal numbers of lines         | refused at the first line without its counterparts |
| none, or more than one, file of a name    | refused                                            |
"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from structattn.data.contrastive.contrast import Contrast
from structattn.data.text.reading import Line, Notices, read_lines
from structattn.support.errors import DataError

NAMES = ("src", "tgt.correct", "tgt.incorrect")


def is_aligned(folder: Path) -> bool:
    """Whether a path is a folder with such files, or some of them."""
    return folder.is_dir() and any(any(folder.glob(f"{name}.*")) for name in NAMES)


def read_aligned(folder: Path, notices: Notices) -> Iterator[Contrast]:
    """Read ``src.*``, ``tgt.correct.*`` and ``tgt.incorrect.*`` line by line; the folder's name is the type.

    Raises:
        DataError: see the table above.
    """
    paths = [_only(folder, name) for name in NAMES]
    for rows in zip_longest(*(read_lines(path, notices) for path in paths)):
        source, reference, contrastive = _texts(paths, rows)
        line = next(row.number for row in rows if row is not None)
        yield Contrast(source, reference, contrastive, folder.resolve().name, None, paths[0], line)


def _only(folder: Path, name: str) -> Path:
    found = sorted(folder.glob(f"{name}.*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise DataError(folder, f"should have one file {name}.*, and has {names}")
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
