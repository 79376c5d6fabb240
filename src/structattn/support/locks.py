"""Locks of files, which end with the process that holds them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from os import getpid
from pathlib import Path

from filelock import FileLock, Timeout

from structattn.support.errors import LockedError


@contextmanager
def lock_file(path: Path, timeout: float = 0) -> Iterator[None]:
    """Hold the lock of a file, created if missing, while the block runs.

    Args:
        path: the file.
        timeout: seconds to wait for another process that holds it.

    Raises:
        BlockingIOError: another running process holds it.
        OSError: the file cannot be created.
    """
    lock = FileLock(path, timeout=timeout, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(f"{path}: is locked") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def exclusive_lock(path: Path, purpose: str, timeout: float = 0) -> Iterator[None]:
    """Hold an exclusive lock while the block runs.

    Args:
        path: the lock file, created if missing.
        purpose: what the lock is held for, in the error message.
        timeout: seconds to wait for another process that holds it.

    Raises:
        LockedError: another running process holds it; the message has its process id. Or the file is not a regular
            file: its content is replaced, and a link may lead anywhere.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise LockedError(f"{path}: is not a regular file")
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_file(path, timeout))
        except BlockingIOError:
            raise LockedError(f"{path}: {purpose} is already running in process {_owner(path)}") from None
        with suppress(PermissionError):  # Windows keeps others, and this process, from a locked file
            path.write_text(f"{getpid()}\n")
        yield


def _owner(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes()[:32].decode(errors="replace").strip() or "unknown"
    return "unknown"
