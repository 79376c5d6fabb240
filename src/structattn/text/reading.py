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
| a line of more than 128 MiB            | refused as soon as so much is read: memory grows with the line     |
"""

import gzip
import io
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from structattn.support.errors import DataError, UsageError
from structattn.support.reading import read_errors
from structattn.support.seeds import derived_seed

_LOGGER = logging.getLogger("structattn")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK = 1 << 16
MAX_LINE_BYTES: Final = 1 << 27


class Notices:
    """Collects notices to the user, each of them once, and logs them as warnings if ``log``."""

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


class TextChunk(NamedTuple):
    """Lines of a file.

    Args:
        first_line: the number of the first line, counted from 1.
        text: the lines, each followed by a line feed, also the last one of the file.
        skipped_bytes: the number of bytes (of a mark) before the text of the first line.
        numbers: those of the lines, where some between them are left out; None: they follow each other.
    """

    first_line: int
    text: str
    skipped_bytes: int
    numbers: Sequence[int] | None = None

    def lines(self) -> Iterator[Line]:
        """Yield the lines one by one."""
        skipped = self.skipped_bytes
        lines = self.text.split("\n")[:-1]
        numbers = range(self.first_line, self.first_line + len(lines)) if self.numbers is None else self.numbers
        for number, text in zip(numbers, lines, strict=True):
            yield Line(number, text, skipped)
            skipped = 0

    def only(self, keep: Callable[[Line], bool]) -> "TextChunk":
        """Return some of the lines."""
        kept = [line for line in self.lines() if keep(line)]
        skipped = kept[0].skipped_bytes if kept else 0
        text = "".join(line.text + "\n" for line in kept)
        return TextChunk(self.first_line, text, skipped, tuple(line.number for line in kept))


def read_lines(path: Path, notices: Notices, name: Path | None = None) -> Iterator[Line]:
    """Read a text file line by line; a file whose name ends in ``.gz`` is decompressed.

    Cost: time linear in the number of bytes, memory of the longest line.

    ``notices`` collects what was dropped; ``name`` is that of the file in messages, by default its path.

    Raises:
        DataError: see the table above.
    """
    for chunk in read_chunks(path, notices, 1, name):
        yield from chunk.lines()


def read_lines_from(file: io.BufferedIOBase, shown: Path, notices: Notices) -> Iterator[Line]:
    """Read an open file, for example standard input, as ``read_lines`` does; lines are yielded as they arrive.

    Raises:
        DataError: see the table above.
    """
    for chunk in _read_chunks_from(file, shown, notices, 1):
        yield from chunk.lines()


def read_chunks(path: Path, notices: Notices, min_bytes: int, name: Path | None = None) -> Iterator[TextChunk]:
    """Read a text file in chunks of whole lines; otherwise like ``read_lines``.

    Where chunks begin depends on the file and on ``min_bytes`` alone.

    ``min_bytes``: the minimum number of bytes read for a chunk, except at the end of the file and before an error.

    Raises:
        DataError: see the table above; the chunks before it are yielded first.
    """
    check_readable(path)
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        yield from _read_chunks_from(file, path if name is None else name, notices, min_bytes)


def _read_chunks_from(file: io.BufferedIOBase, shown: Path, notices: Notices, min_bytes: int) -> Iterator[TextChunk]:
    for first_line, raw in _raw_chunks(file, shown, min_bytes):
        skipped = length_of_mark(raw, shown, notices) if first_line == 1 else 0
        if skipped and len(raw) == skipped:
            return  # nothing follows the mark: an empty file
        if b"\r\n" in raw:
            notices.add(f"{shown}: lines end in CRLF; the CR is dropped")
        elif first_line == 1 and b"\r" in raw and b"\n" not in raw:
            notices.add(f"{shown}: is one line, which has CR; lines are expected to end in LF")
        yield from _decode_chunk(raw, shown, first_line, skipped)


def length_of_mark(content: bytes, path: Path, notices: Notices) -> int:
    """Return how many bytes the byte-order mark at the start of a file has, and add the notice that it is dropped."""
    if not content.startswith(_BYTE_ORDER_MARK):
        return 0
    notices.add(f"{path}: the byte-order mark at the start is dropped")
    return len(_BYTE_ORDER_MARK)


def check_readable(path: Path) -> None:
    """Check that a path is a regular file that can be opened.

    Raises:
        DataError: it is not.
    """
    with read_errors(path):
        if path.is_dir():
            raise DataError(path, "is a directory; expected a text file")
        if path.exists() and not path.is_file():
            raise DataError(path, "is not a regular file, so it cannot be read twice")
        with path.open("rb"):
            pass


def _raw_chunks(file: io.BufferedIOBase, path: Path, min_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of whole lines with the number of their first line; only the last line may lack its line feed."""
    number, rest, failure = 1, b"", ""
    while True:
        parts, length, ends_line = [rest], len(rest), False  # joined once, so that long lines take linear time
        line_length = length
        while length < min_bytes or not ends_line:
            try:
                part = file.read1(_CHUNK)
            except (OSError, EOFError, zlib.error) as error:
                failure = _read_failure(error)
                break
            if not part:
                if length:
                    yield number, b"".join(parts)
                return
            parts.append(part)
            length, ends_line = length + len(part), ends_line or b"\n" in part
            line_length = len(part) - part.rfind(b"\n") - 1 if b"\n" in part else line_length + len(part)
            if line_length > MAX_LINE_BYTES:
                failure = f"the line has more than {MAX_LINE_BYTES:,} bytes; expected shorter lines"
                break
        whole = b"".join(parts)
        end = whole.rfind(b"\n") + 1
        if end:
            yield number, whole[:end]
        number, rest = number + whole.count(b"\n"), whole[end:]
        if failure:
            raise DataError(path, failure, number, len(rest) + 1)


def _read_failure(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the compressed data end too early; the file is truncated"
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return f"not gzip, or damaged: {error}"
    return f"cannot be read further: {getattr(error, 'strerror', None) or error}"


def _decode_chunk(raw: bytes, path: Path, first_line: int, skipped: int) -> Iterator[TextChunk]:
    """Decode a chunk; if a line is refused, yield the lines before it first."""
    try:
        text = raw[skipped:].decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        ending = "" if text.endswith("\n") else "\n"
        yield TextChunk(first_line, text.replace("\r\n", "\n") + ending, skipped)
        return
    good = list[str]()
    try:
        for number, line in enumerate(raw.split(b"\n"), start=first_line):
            good.append(_decode_line(line, skipped if number == first_line else 0, path, number))
    except DataError:
        if good:
            yield TextChunk(first_line, "".join(line + "\n" for line in good), skipped)
        raise


def _decode_line(raw: bytes, skipped: int, path: Path, number: int) -> str:
    body = raw[skipped:].removesuffix(b"\r")  # the error is found in any case
    nul = body.find(b"\0")
    try:
        text = body[: nul if nul >= 0 else None].decode()
    except UnicodeDecodeError as error:
        reason = f"byte 0x{body[error.start]:02X} is not UTF-8 ({error.reason})"
        hint = "; it looks like UTF-16" if number == 1 and raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else ""
        raise DataError(path, reason + hint, number, skipped + error.start + 1) from None
    if nul >= 0:
        raise DataError(path, "a NUL byte; expected text", number, skipped + nul + 1)
    return text


@dataclass(frozen=True)
class Portion:
    """A random portion of the lines of a file, or of its pairs by their source lines, with all that are equal.

    A hash of the line and the seed gives a number uniform over [0, 1); the portion holds the lines
    with numbers in [low, high).
    """

    low: float
    high: float
    seed: int

    def contains(self, line: str) -> bool:
        """Return whether a line is in the portion."""
        return self.low <= derived_seed(self.seed, "held out", line) / 2**63 < self.high


def split_portions(shares: Mapping[str, float], seed: int, rest: str) -> dict[str, Portion]:
    """Divide [0, 1) into portions.

    Raises:
        UsageError: a share is not between 0 and 1, or nothing remains.
    """
    portions, low = {}, 0.0
    for name, share in shares.items():
        if not 0 < share < 1:
            raise UsageError(f"the share held out for {name!r} is {share}; expected more than 0 and less than 1")
        portions[name] = Portion(low, low + share, seed)
        low += share
    if low >= 1:
        raise UsageError(f"the shares held out add up to {low:g}; nothing is left for {rest!r}")
    return portions | {rest: Portion(low, 1.0, seed)}
