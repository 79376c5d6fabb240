"""Folders that are being written: hidden, beside the folder that they become, and locked by their process."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EAGAIN
from pathlib import Path
from secrets import token_hex
from typing import Final

from structattn.support.locks import lock_file

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
