"""Strict reading of text files: bytes, cut at line feeds only, decoded as UTF-8 or refused with the place.

| input                                  | outcome                                                            |
|----------------------------------------|--------------------------------------------------------------------|
| not UTF-8, or a NUL byte               | refused: file, line, byte column                                   |
| a folder, a pipe, an unreadable file   | refused                                                            |
| ``.gz`` truncated or damaged           | refused at the line and column at which the data end               |
| byte-order mark at the start           | dropped, said once                                                 |
| CR before LF                           | dropped, said once; any other CR is an ordinary character          |
| U+0085, U+2028, VT, FF, FS, GS, RS ... | ordinary characters, though ``str.splitlines`` breaks lines there  |
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
    """What a user should know and need not act on; each notice is logged (unless ``log`` is false) and kept once."""

    def __init__(self, log: bool = True) -> None:
        self._log = log
        self._messages: dict[str, None] = {}

    def say(self, message: str) -> None:
        """Log a message as a warning, unless it has been said."""
        if message not in self._messages:
            self._messages[message] = None
            if self._log:
                _LOGGER.warning(message)

    @property
    def messages(self) -> tuple[str, ...]:
        """All that was said, in order."""
        return tuple(self._messages)


class Line(NamedTuple):
    """A line of a file: its number, from 1; its text; how many bytes of the line (of a mark) stand before the text."""

    number: int
    text: str
    skipped_bytes: int


def read_lines(path: Path, notices: Notices, name: Path | None = None) -> Iterator[Line]:
    """Read a text file line by line; a name that ends in ``.gz`` is decompressed.

    Args:
        path: the file.
        notices: takes what the user should know.
        name: what messages call the file, where that is not its path.

    Cost: time linear in the bytes, memory in the longest line.

    Raises:
        DataError: see the table above.
    """
    check_readable(path)
    shown = path if name is None else name
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        yield from lines_of(file, shown, notices)


def lines_of(file: io.BufferedIOBase, shown: Path, notices: Notices) -> Iterator[Line]:
    """What ``read_lines`` gives, of an open file, standard input for instance; ``shown`` is what messages call it.

    Raises:
        DataError: see the table above.
    """
    for number, raw in enumerate(_raw_lines(file, shown), start=1):
        skipped = len(_BYTE_ORDER_MARK) if number == 1 and raw.startswith(_BYTE_ORDER_MARK) else 0
        if skipped:
            notices.say(f"{shown}: the byte-order mark at the start is dropped")
            if len(raw) == skipped:
                return  # nothing follows: an empty file
        if raw.endswith(b"\r\n"):
            notices.say(f"{shown}: lines end in CRLF; the CR is dropped")
        yield Line(number, _decoded(raw, skipped, shown, number), skipped)


def check_readable(path: Path) -> None:
    """Check that a path is a file that can be opened, and read more than once.

    Raises:
        DataError: it is not.
    """
    try:
        if path.is_dir():
            raise DataError(path, "is a directory; expected a text file")
        if path.exists() and not path.is_file():
            raise DataError(path, "is not a regular file; it could not be read twice")
        with path.open("rb"):
            pass
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None


def _raw_lines(file: io.BufferedIOBase, path: Path) -> Iterator[bytes]:
    """The lines as bytes, each with its line feed; cut by hand, so that a failed read has an exact place."""
    number, pending = 1, list[bytes]()  # parts of the line being gathered: joining them once keeps long lines linear
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


def _decoded(raw: bytes, skipped: int, path: Path, number: int) -> str:
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
