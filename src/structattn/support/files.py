"""Every write of the package: atomic files and folders that a power loss cannot take back, and file digests.

The data of a file are safe once the file is flushed, its name once its folder is. What is not flushed may be lost, in
any order: a rename may survive without the data of the file.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from structattn.support.reading import open_regular

_INCOMPLETE = ".incomplete"
"""The end of the names of folders that are being written."""


def flush_to_disk(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk.

    Raises:
        OSError: it cannot be opened, or is neither a file nor a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without waiting for the writer of a FIFO
    try:
        with _naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_folder(path: Path) -> None:
    """Create a folder, and its missing parents, unless it exists; flush their names to disk.

    The names of existing folders are flushed, too: the process that created them may have been killed before.
    """
    path.mkdir(parents=True, exist_ok=True)
    flush_names(path)


def flush_names(path: Path) -> None:
    """Flush the name of an existing file or folder, and those of its parents, to disk."""
    for parent in path.absolute().parents:
        if os.access(parent, os.R_OK | os.W_OK):  # elsewhere this user has created nothing
            flush_to_disk(parent)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name a path in the errors of the operating system: those of writing, unlike those of opening, have no name."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file atomically: after a crash, and to concurrent readers, it has the old content or the new.

    When the function returns, the new content is on disk.
    """
    data = content.encode() if isinstance(content, str) else content
    with _naming(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        flush_to_disk(path.parent)


@contextmanager
def write_folder_atomically(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """Write a folder atomically. When the context ends without an error, the folder is on disk.

    Args:
        path: the folder; must not exist, or be empty, unless ``previous`` is given. Its parent must exist.
        previous: an existing folder at ``path`` has this name until the new one is on disk; then it is removed.

    Yields:
        An empty temporary folder. On success it is flushed and renamed to ``path``, on failure removed.
    """
    with _incomplete_folder(path) as temporary:
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                flush_to_disk(Path(folder, name))
            flush_to_disk(Path(folder))
        if previous is not None and path.exists():
            path.rename(previous)
        temporary.rename(path)
        flush_to_disk(path.parent)
    if previous is not None and previous.exists():
        shutil.rmtree(previous)


@contextmanager
def _incomplete_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``path``, locked by this process; it is removed if it still has its name at the end.

    Folders for the same ``path`` that killed processes have left are removed first.
    """
    remove_abandoned_folders(path.parent, path.name)
    with ExitStack() as stack:
        folder = _locked_folder(path, stack)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        yield folder


def _locked_folder(path: Path, stack: ExitStack) -> Path:
    """Create a folder that is locked until the stack is closed; without a lock on file systems that have none."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=_INCOMPLETE))
        try:
            stack.enter_context(_lock(folder))
        except (BlockingIOError, FileNotFoundError):  # another process takes it for abandoned
            continue
        except OSError:
            return folder
        if folder.exists():
            return folder


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which ends with the process.

    Raises:
        OSError: another process holds it, the folder does not exist, or its file system has no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def remove_abandoned_folders(parent: Path, name: str | None = None) -> None:
    """Remove incomplete folders that killed processes have left; errors are ignored.

    The lock of an incomplete folder is held as long as its process lives.

    Args:
        parent: where they are.
        name: the name that they would have got when complete; None: any.
    """
    target = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{target}\.[a-z0-9_]{{8}}{re.escape(_INCOMPLETE)}", re.DOTALL)
    for folder in [entry for entry in parent.iterdir() if pattern.fullmatch(entry.name)]:
        with suppress(OSError), _lock(folder):
            shutil.rmtree(folder, ignore_errors=True)


def write_unflushed(path: Path, content: bytes | str) -> None:
    """Write a file that is safe only when it is flushed: inside `write_folder_atomically`, or in a temporary folder."""
    with _naming(path):
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def open_unflushed(path: Path) -> BinaryIO:
    """Open a file for writing; see `write_unflushed`."""
    return path.open("wb")


def create_folder_unflushed(path: Path) -> None:
    """Create a folder, and its missing parents, unless it exists; see `write_unflushed`."""
    path.mkdir(parents=True, exist_ok=True)


@contextmanager
def temporary_folder(beside: Path | None = None) -> Iterator[Path]:
    """Yield a folder that is removed at the end: beside a given path, on its disk, or where the system has them."""
    if beside is not None:
        create_folder(beside.parent)
        with _incomplete_folder(beside) as folder:
            yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def open_for_appending(path: Path, length: int | None = None) -> BinaryIO:
    """Open a file for appending, unbuffered, created if missing. Nothing is flushed.

    Args:
        path: the file.
        length: number of bytes to keep; None: all.
    """
    file = path.open("ab", buffering=0)
    if length is not None:
        file.truncate(length)
    return file


def rename_unflushed(path: Path, target: Path) -> None:
    """Rename a file or folder; a power loss may undo it."""
    path.rename(target)


def remove_file_unflushed(path: Path) -> None:
    """Remove a file if it exists; a power loss may undo it."""
    path.unlink(missing_ok=True)


def remove_folders(paths: Sequence[Path]) -> None:
    """Remove folders that have the same parent. After a crash each is whole or has lost its name.

    Until they are gone they are called ``.NAME.removed``.
    """
    hidden = [path.with_name(f".{path.name.lstrip('.')}.removed") for path in paths]
    for path, new_name in zip(paths, hidden, strict=True):
        remove_leftover_folder(new_name)
        path.rename(new_name)
    for parent in {path.parent for path in paths}:
        flush_to_disk(parent)
    for path in hidden:
        shutil.rmtree(path)


def remove_leftover_folder(path: Path) -> None:
    """Remove what a killed process left under a name that nothing reads; errors are ignored."""
    shutil.rmtree(path, ignore_errors=True)


def sha256_of_file(path: Path, limit: int | None = None) -> str:
    """Return the hexadecimal SHA-256 of a regular file.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more than ``limit`` bytes.
    """
    with open_regular(path, limit) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
