"""Strict reading of text files: lines end at line feeds only and are decoded as UTF-8.

| input                                  | outcome                                                            |
|----------------------------------------|--------------------------------------------------------------------|
| invalid UTF-8, or a NUL byte           | refused with file, line and byte column                            |
| a folder, a pipe, an unreadable file   | refused                                                            |
| truncated or damaged ``.gz``           | refused with the line and column at which the data end             |
| byte-order mark at the start           | dropped with a notice                                              |
| CR before LF                           | dropped with a notice; any other CR is an ordinary character       |
| U+0085, U+2028, VT, FF, FS, GS, RS ... | ordinary characters, although ``str.splitlines`` splits there      |
| no line feed at the end                | the last line counts like the others                               |
"""

import gzip
import io
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from structattn.support.errors import DataError

_LOGGER = logging.getLogger("structattn")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK = 1 << 16


class Notices:
    """Collects notices to the user, each of them once.

    Args:
        log: also log each notice as a warning.
    """

    def __init__(self, log: bool = True) -> None:
        self._log = log
        self._messages: dict[str, None] = {}

    def add(self, message: str) -> None:
        """Add a notice, unless it was added before."""
        if message not in self._messages:
            self._messages[message] = None
            if self._log:
                _LOGGER.warning(message)

    @property
    def messages(self) -> tuple[str, ...]:
        """All notices in order."""
        return tuple(self._messages)


class Line(NamedTuple):
    """A line of a file: its number, counted from 1, its text, and the number of bytes (of a mark) before the text."""

    number: int
    text: str
    skipped_bytes: int


def read_lines(path: Path, notices: Notices, name: Path | None = None) -> Iterator[Line]:
    """Read a text file line by line; a file whose name ends in ``.gz`` is decompressed.

    Cost: time linear in the number of bytes, memory of the longest line.

    Args:
        path: the file.
        notices: collects what was dropped.
        name: the name of the file in messages, by default its path.

    Raises:
        DataError: see the table above.
    """
    check_readable(path)
    shown = path if name is None else name
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        yield from read_lines_from(file, shown, notices)


def read_lines_from(file: io.BufferedIOBase, shown: Path, notices: Notices) -> Iterator[Line]:
    """Read an open file, for example standard input, as ``read_lines`` does.

    Args:
        file: a file opened in binary mode.
        shown: the name of the file in messages.
        notices: collects what was dropped.

    Raises:
        DataError: see the table above.
    """
    for number, raw in enumerate(_raw_lines(file, shown), start=1):
        skipped = len(_BYTE_ORDER_MARK) if number == 1 and raw.startswith(_BYTE_ORDER_MARK) else 0
        if skipped:
            notices.add(f"{shown}: the byte-order mark at the start is dropped")
            if len(raw) == skipped:
                return  # nothing follows the mark: an empty file
        if raw.endswith(b"\r\n"):
            notices.add(f"{shown}: lines end in CRLF; the CR is dropped")
        yield Line(number, _decode(raw, skipped, shown, number), skipped)


def check_readable(path: Path) -> None:
    """Check that a path is a regular file that can be opened.

    Raises:
        DataError: it is not.
    """
    try:
        if path.is_dir():
            raise DataError(path, "is a directory; expected a text file")
        if path.exists() and not path.is_file():
            raise DataError(path, "is not a regular file, so it cannot be read twice")
        with path.open("rb"):
            pass
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None


def _raw_lines(file: io.BufferedIOBase, path: Path) -> Iterator[bytes]:
    """Yield lines with their line feeds. Lines are split here, so that a failed read has an exact position."""
    number, pending = 1, list[bytes]()  # chunks of the current line; joined once, so that long lines take linear time
    while True:
        try:
            chunk = file.read1(_CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(path, _read_failure(error), number, sum(map(len, pending)) + 1) from None
        if not chunk:
            break
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            yield b"".join((*pending, part, b"\n"))
            pending.clear()
        number += len(complete)
        if rest:
            pending.append(rest)
    if pending:
        yield b"".join(pending)


def _read_failure(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the compressed data end too early; the file is truncated"
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return f"not gzip, or damaged: {error}"
    return f"cannot be read further: {getattr(error, 'strerror', None) or error}"


def _decode(raw: bytes, skipped: int, path: Path, number: int) -> str:
    ending = 2 if raw.endswith(b"\r\n") else int(raw.endswith(b"\n"))
    body = raw[skipped : len(raw) - ending]
    nul = body.find(b"\0")
    try:
        text = body[: nul if nul >= 0 else None].decode()
    except UnicodeDecodeError as error:
        found = f"byte 0x{body[error.start]:02X} is not UTF-8 ({error.reason})"
        hint = "; it looks like UTF-16" if number == 1 and raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else ""
        raise DataError(path, found + hint, number, skipped + error.start + 1) from None
    if nul >= 0:
        raise DataError(path, "a NUL byte; expected text", number, skipped + nul + 1)
    return text
