"""Every write of the package: atomic files and folders that a power loss cannot take back.

The data of a file are safe once the file is flushed, its name once its folder is. What is not flushed may be lost, in
any order: a rename may survive without the data of the file.
"""

import errno
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final, TextIO

from structattn.support.errors import DISK_FULL, StructattnError
from structattn.support.locks import (
    INCOMPLETE,
    incomplete_folder,
    lock_file,
    lock_incomplete,
    remove_abandoned_folders,
)
from structattn.support.reading import READ_ONLY, open_regular

_COMPLETE: Final = ".complete"
"""The end of the names of folders whose content is being moved to the folder that they are in."""


def flush_to_disk(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk.

    Raises:
        OSError: it cannot be opened, or is neither a file nor a folder.
    """
    if sys.platform == "win32" and path.is_dir():  # has no descriptor there; NTFS logs changes of names
        return
    descriptor = os.open(path, READ_ONLY)
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


def check_writable_folder(path: Path) -> None:
    """Check that a folder exists or can be created, and files in it; nothing is created.

    Raises:
        OSError: it cannot; the error names the path that stands in the way.
    """
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(existing))


def check_writable_file(path: Path) -> None:
    """Check that `write_atomically` can write a file, whose folder may be missing; nothing is created.

    Raises:
        OSError: it cannot; the error names the path that stands in the way.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.is_file() or not path.exists():  # devices and pipes are written to
        check_writable_folder(path.resolve().parent)


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
    """Write a file that a user has named, atomically: after a crash, and to others, it has the old content or the new.

    When the function returns, the new content is on disk. A link is followed, and devices and pipes are written to, as
    is the file to which standard output or error is redirected: replaced, it would lose what they have written.
    """
    with _naming(path):
        if stream := _redirected_to(path):
            stream.flush()
            stream.buffer.write(_bytes_of(content))
            stream.flush()
            return
        if path.exists() and not (path.is_file() or path.is_dir()):
            path.write_bytes(_bytes_of(content))
            return
    replace_file(path.resolve() if path.is_symlink() else path, content)


def _redirected_to(path: Path) -> TextIO | None:
    """Return the standard stream that writes to a regular file; None for all other files."""
    for stream in (sys.stdout, sys.stderr):
        # a missing file; a stream that is closed, or has no descriptor
        with suppress(OSError, ValueError, AttributeError):
            if path.is_file() and os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                return stream
    return None


def replace_file(path: Path, content: bytes | str) -> None:
    """Write a file of a run or another folder of the program's own, atomically, as ``write_atomically`` does.

    What stands in its place is replaced. A link is not followed: in a stranger's folder, it may lead to any file of
    this user.
    """
    with _naming(path):
        with _temporary_file(path) as temporary:
            with temporary.open("wb") as file:
                file.write(_bytes_of(content))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        flush_to_disk(path.parent)


def _bytes_of(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


@contextmanager
def _temporary_file(path: Path) -> Iterator[Path]:
    """Yield a name for the new content of a file; nothing has it at the end.

    Those that killed writers of the file have left are removed first. Other writers hold locks, but on Windows, where
    another process cannot remove what they have opened, and nobody write to what is locked.
    """
    for abandoned in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}"):
        with suppress(OSError), lock_file(abandoned):
            abandoned.unlink()
    temporary = path.with_name(f".{path.name}.{token_hex(4)}")
    temporary.touch()  # with the mode that the umask says, which a lock does not heed
    with nullcontext() if sys.platform == "win32" else lock_file(temporary):
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)


def require_own_folder(folder: Path, own: Collection[str], written: Collection[str], expected: str) -> None:
    """Check that a folder does not exist, or has nothing of others, so that nothing is overwritten.

    Args:
        folder: the folder.
        own: names that it may have.
        written: names of files whose temporary files it may have, as a killed writer leaves them.
        expected: what was expected, for the message.

    Raises:
        StructattnError: it has another name, of which the message says the first, or is a file.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StructattnError(f"{folder}: is a file; expected {expected}")
    temporary = re.compile(rf"\.({'|'.join(map(re.escape, written))})\.[0-9a-f]{{8}}")
    names = sorted(entry.name for entry in folder.iterdir())
    if others := [name for name in names if name not in own and not temporary.fullmatch(name)]:
        raise StructattnError(f"{folder}: expected {expected}; found {others[0]!r} in it")


def remove_folder_with_only(folder: Path, name: str) -> None:
    """Remove a folder that has a file of this name and nothing else; Windows keeps one that is locked."""
    with suppress(OSError):
        if [each.name for each in folder.iterdir()] == [name]:
            (folder / name).unlink()
            folder.rmdir()


@contextmanager
def write_folder_atomically(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """Write a folder atomically. When the context ends without an error, the folder is on disk.

    Args:
        path: the folder; must not exist, or be empty, unless ``previous`` is given. Its parent must exist. An empty
            one, which may be the working directory, a link or a mount point, stays and gets the content.
        previous: an existing folder at ``path`` has this name until the new one is on disk; then it is removed.

    Yields:
        An empty temporary folder. On success it is flushed and renamed to ``path``, on failure removed.

    Raises:
        OSError: the disk is full, or the like; it names ``path`` rather than the temporary folder, whatever library
            has written.
    """
    if previous is None and path.is_dir():
        with naming_target(path), _filled(path.resolve()) as temporary:
            yield temporary
        return
    with naming_target(path), incomplete_folder(path) as temporary:
        yield temporary
        _flush_tree(temporary)
        if previous is not None and path.exists():
            path.rename(previous)
        temporary.rename(path)
        flush_to_disk(path.parent)
    if previous is not None and previous.exists():
        shutil.rmtree(previous)


@contextmanager
def naming_target(path: Path) -> Iterator[None]:
    """Name a folder in errors about a file in its temporary folder, and in those of libraries about a full disk.

    Raises:
        OSError: for the error of a library that says so in its message alone.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None or INCOMPLETE in str(error.filename):
            error.filename = str(path)
        raise
    except Exception as error:
        number = next((number for number in DISK_FULL if os.strerror(number) in str(error)), None)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _flush_tree(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            flush_to_disk(Path(folder, name))
        flush_to_disk(Path(folder))


@contextmanager
def _filled(place: Path) -> Iterator[Path]:
    """Yield a temporary folder within an empty one; at the end its content moves up, which a crash only interrupts."""
    with incomplete_folder(place / place.name) as temporary:
        yield temporary
        _flush_tree(temporary)
        complete = temporary.with_suffix(_COMPLETE)
        temporary.rename(complete)
        flush_to_disk(place)
        _move_up(complete)


def _move_up(complete: Path) -> None:
    place = complete.parent
    for entry in sorted(complete.iterdir()):
        entry.rename(place / entry.name)
    flush_to_disk(place)
    complete.rmdir()


def is_empty_folder(path: Path) -> bool:
    """Return whether a folder is empty, without what killed processes have left there.

    What they had completed, and not yet moved to its place, is moved first; what was incomplete is removed, also what
    they left beside the folder.
    """
    with suppress(OSError):
        remove_abandoned_folders(path.absolute().parent, path.absolute().name)
    for complete in path.glob(f".*{_COMPLETE}"):
        with suppress(OSError), lock_incomplete(complete.with_suffix(INCOMPLETE)):
            _move_up(complete)
    remove_abandoned_folders(path)
    return not any(path.iterdir())


def write_unflushed(path: Path, content: bytes | str) -> None:
    """Write a file that is safe only when it is flushed: inside `write_folder_atomically`, or in a temporary folder."""
    with _naming(path):
        path.write_bytes(_bytes_of(content))


def let_others_read(path: Path) -> None:
    """Give a file that a library wrote for its owner alone the mode of our own files in the same folder."""
    path.chmod(path.parent.stat().st_mode & 0o666)


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
        with incomplete_folder(beside) as folder:
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


def path_from(folder: Path, path: Path) -> str:
    """Return a path relative to a folder; an absolute one on another drive of Windows, to which none leads."""
    try:
        return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
    except ValueError:
        return path.resolve().as_posix()


def sha256_of_file(path: Path, limit: int | None = None) -> str:
    """Return the hexadecimal SHA-256 of a regular file.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more than ``limit`` bytes.
    """
    with open_regular(path, limit) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
