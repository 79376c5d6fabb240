"""Files and folders that appear whole or not at all, and their digests."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
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
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Give an empty temporary folder; on success it is flushed and renamed to ``path``, on failure removed.

    ``path`` must not exist, or be an empty folder.
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
    """The hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
