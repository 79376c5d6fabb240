"""A lock on a folder that the operating system releases when its owner dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from structattn.support.errors import LockedError


@contextmanager
def exclusive_lock(path: Path, purpose: str) -> Iterator[None]:
    """Hold ``path`` (a file, made if missing) for the time of the block.

    Raises:
        LockedError: another living process holds it; its number is in the message.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise LockedError(f"{path}: {purpose} is already under way in process {owner}") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # closing the only descriptor releases the lock
