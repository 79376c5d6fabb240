"""Locks of files, which end with the process that holds them, and folders that are being written."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EAGAIN
from os import getpid
from pathlib import Path
from secrets import token_hex
from typing import Final

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
        with suppress(OSError):  # Windows keeps this process, too, from a locked file; on a full disk, the lock holds
            path.write_text(f"{getpid()}\n")
        yield


def _owner(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes()[:32].decode(errors="replace").strip() or "unknown"
    return "unknown"


_LOCK: Final = ".lock"
_ATTEMPTS: Final = 100
INCOMPLETE: Final = ".incomplete"
"""The end of the names of folders that are being written."""


@contextmanager
def incomplete_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``path``, locked by this process; it is removed if it still has its name at the end.

    Folders for the same ``path`` that killed processes have left are removed first.
    """
    remove_abandoned_folders(path.parent, path.name)
    with ExitStack() as stack:
        folder = _locked_folder(path, stack)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _locked_folder(path: Path, stack: ExitStack) -> Path:
    """Create a folder that is locked until the stack is closed."""
    for _ in range(_ATTEMPTS):
        folder = path.with_name(f".{path.name}.{token_hex(4)}{INCOMPLETE}")
        try:
            stack.enter_context(lock_incomplete(folder))
        except BlockingIOError:  # another process is removing the lock's file
            continue
        folder.mkdir()
        return folder
    folder.mkdir()  # raises what the locks have taken for contention
    folder.rmdir()
    raise BlockingIOError(EAGAIN, "other processes remove its locks", str(path))


@contextmanager
def lock_incomplete(folder: Path) -> Iterator[None]:
    """Hold the lock of an incomplete folder: a file beside it, which is removed at the end.

    Raises:
        OSError: another process holds it, or the file cannot be created.
    """
    path = folder.with_name(folder.name + _LOCK)
    with lock_file(path):
        try:
            yield
        finally:
            with suppress(OSError):  # Windows keeps a file that is open
                path.unlink()


def remove_abandoned_folders(parent: Path, name: str | None = None) -> None:
    """Remove incomplete folders that killed processes have left, and their locks; errors are ignored.

    The lock of an incomplete folder is held as long as its process lives.

    Args:
        parent: where they are.
        name: the name that they would have got when complete; None: any.
    """
    target = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"(\.{target}\.[a-z0-9_]{{8}}{re.escape(INCOMPLETE)})(?:{re.escape(_LOCK)})?", re.DOTALL)
    names = {match[1] for entry in parent.iterdir() if (match := pattern.fullmatch(entry.name))}
    for folder in sorted(parent / each for each in names):
        with suppress(OSError), lock_incomplete(folder):
            shutil.rmtree(folder, ignore_errors=True)
