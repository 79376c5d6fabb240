"""Digests of large files, remembered so that a file that has not changed since is not read again.

The cache confirms digests only: a file counts as unchanged if it has the device, inode, size, modification time and
status change time (in nanoseconds) that it had when its digest was computed. The system sets the status change time at
every write, and programs cannot set it back. The environment variable ``STRUCTATTN_DIGEST_CACHE`` names the folder of
the cache; if it is empty there is none, and every file is read.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from structattn.support.files import create_folder_unflushed, sha256_of_file, write_atomically
from structattn.support.reading import read_bytes

VARIABLE: Final = "STRUCTATTN_DIGEST_CACHE"
SMALLEST: Final = 1 << 24  # bytes; smaller files are read every time, in a few milliseconds
SETTLED: Final = (
    10.0  # seconds since the last change; a write in the same tick of the clock would leave the times alone
)


def cached_sha256(path: Path, expected: str, limit: int | None = None) -> str:
    """Return the SHA-256 of a regular file; from the cache only if that confirms ``expected``.

    Raises:
        OSError: the file cannot be read, is not a regular file, or has more than ``limit`` bytes.
    """
    entry = _entry(before := path.stat())
    if entry is not None and _stored(entry) == _line(before, expected):
        return expected
    digest = sha256_of_file(path, limit)
    after = path.stat()
    settled = time.time() - max(after.st_mtime, after.st_ctime) > SETTLED
    if entry is not None and settled and _key(before) == _key(after):
        with suppress(OSError):  # without a cache the file is read again next time
            create_folder_unflushed(entry.parent)
            write_atomically(entry, _line(after, digest))
    return digest


def _entry(file: os.stat_result) -> Path | None:
    """Return the path of the cache's entry for a file; None if it is not cached."""
    folder = os.environ.get(VARIABLE, _default_folder())
    return Path(folder) / f"{file.st_dev}-{file.st_ino}" if folder and file.st_size >= SMALLEST else None


def _default_folder() -> str:
    home = os.environ.get("HOME")
    caches = os.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    return f"{caches}/structattn/digests" if caches else ""


def _key(file: os.stat_result) -> tuple[int, ...]:
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns


def _line(file: os.stat_result, digest: str) -> bytes:
    return " ".join([*map(str, _key(file)), digest]).encode() + b"\n"


def _stored(entry: Path) -> bytes | None:
    try:
        return read_bytes(entry, 1024)
    except OSError:
        return None
