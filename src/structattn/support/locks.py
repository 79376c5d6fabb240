"""A lock file that the operating system releases when its owner dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from structattn.support.errors import LockedError


@contextmanager
def exclusive_lock(path: Path, purpose: str) -> Iterator[None]:
    """Hold an exclusive lock while the block runs.

    Args:
        path: the lock file, created if missing.
        purpose: what the lock is held for, in the error message.

    Raises:
        LockedError: another running process holds it; the message has its process id. Or the file is not a regular
            file: its content is replaced, and a link may lead anywhere.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise LockedError(f"{path}: is not a regular file")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise LockedError(f"{path}: {purpose} is already running in process {owner}") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # closing the only descriptor releases the lock
