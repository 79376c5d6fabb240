"""Read files that may be damaged or malicious: regular files only, of bounded size, JSON of bounded depth."""

import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from structattn.support.errors import DataError

MAX_BYTES: Final = 1 << 28  # of a file that is read as a whole: 256 MiB
MAX_TEXT_BYTES: Final = 1 << 32  # of a file of text, which grows with the data
MAX_DEPTH: Final = 64  # of nested lists and objects; functions that recurse over JSON stay far from Python's limit
MAX_INTEGER: Final = (1 << 63) - 1  # seeds are the largest integers in files
MAX_COUNT: Final = 1 << 53

READ_ONLY: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags of ``os.open``: without waiting for the writer of a FIFO, and the bytes as they are on Windows."""


def open_regular(path: Path, limit: int | None = None) -> BufferedReader:
    """Open a regular file, or a link to one, for reading in binary mode.

    Never waits: opening a FIFO would wait for a writer, and a device may never end.

    Raises:
        OSError: the file cannot be opened, is not a regular file, or has more than ``limit`` bytes.
    """
    _require_regular(path, path.stat(), limit)  # before opening: opening a device can have effects
    descriptor = os.open(path, READ_ONLY)
    try:
        _require_regular(path, os.fstat(descriptor), limit)  # the path may name another file by now
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _require_regular(path: Path, status: os.stat_result, limit: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(kind, "is not a regular file", str(path))
    if limit is not None and status.st_size > limit:
        raise OSError(errno.EINVAL, f"has {status.st_size} bytes; expected at most {limit}", str(path))


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more than ``limit`` bytes.
    """
    with open_regular(path, limit) as file:
        size = os.fstat(file.fileno()).st_size  # read(limit) would allocate the limit first
        return file.read(min(size, limit))


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Raise an ``OSError`` inside as a ``DataError`` that tells that the file cannot be read."""
    try:
        yield
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None


def content_of(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return what ``read_bytes`` does.

    Raises:
        DataError: the file cannot be read, is not a regular file, or has more than ``limit`` bytes.
    """
    with read_errors(path):
        return read_bytes(path, limit)


def chunks(file: BufferedReader, length: int) -> Iterator[bytes]:
    """Yield the next ``length`` bytes of a file, or what there is, in parts of at most 1 MiB."""
    while length > 0 and (chunk := file.read(min(length, 1 << 20))):
        length -= len(chunk)
        yield chunk


def parse_json(content: bytes) -> Any:
    """Parse JSON in UTF-8.

    Raises:
        ValueError: it is not JSON, nests lists and objects more than ``MAX_DEPTH`` deep, or has a number that is NaN,
            infinite, or an integer that takes more than 64 bits.
    """
    try:
        tree = json.loads(content.decode(), parse_constant=_constant, parse_int=_integer, parse_float=_float)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(tree)
    return tree


_TOO_DEEP = f"lists and objects are nested more than {MAX_DEPTH} deep"


def _check_depth(tree: Any) -> None:
    level, depth = [tree], 0
    while level := [child for node in level for child in _children(node)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)


def _children(node: Any) -> Iterable[Any]:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return (child for child in children if isinstance(child, dict | list))


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _integer(digits: str) -> int:
    if len(digits) > 20 or abs(number := int(digits)) > MAX_INTEGER:
        raise ValueError(f"the integer {digits:.20} takes more than 64 bits")
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits:.20} is too large")
    return number
