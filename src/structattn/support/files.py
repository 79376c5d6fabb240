"""Atomic writing of files and folders, and file digests."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def flush_to_disk(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file atomically: after a crash, and to concurrent readers, it has the old content or the new."""
    data = content.encode() if isinstance(content, str) else content
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


@contextmanager
def write_folder_atomically(path: Path) -> Iterator[Path]:
    """Write a folder atomically.

    Args:
        path: the folder; must not exist, or be empty.

    Yields:
        An empty temporary folder. On success it is flushed and renamed to ``path``, on failure removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    temporary.chmod(0o755)
    try:
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                flush_to_disk(Path(folder, name))
            flush_to_disk(Path(folder))
        temporary.rename(path)
        flush_to_disk(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def sha256_of_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
