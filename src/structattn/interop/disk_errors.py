"""Errors of writing in other libraries, with the path that the user knows."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_NUMBER: Final = re.compile(r"\(os error (\d+)\)")  # in the messages of libraries in Rust


@contextmanager
def naming_folder(folder: Path, temporary: Path | None = None) -> Iterator[None]:
    """Name a folder in errors of the operating system that name nothing, or a file in the folder written in its place.

    Args:
        folder: the folder that the user gave.
        temporary: the folder with another name that becomes it.

    Raises:
        OSError: a library could not write.
    """
    try:
        yield
    except OSError as error:
        name = error.filename
        if name is None:
            error.filename = str(folder)
        elif temporary is not None and Path(os.fsdecode(name)).is_relative_to(temporary):
            error.filename = str(folder / Path(os.fsdecode(name)).relative_to(temporary))
        raise
    except Exception as error:
        if found := _NUMBER.search(str(error)):
            number = int(found[1])
            raise OSError(number, os.strerror(number), str(folder)) from None
        raise
