"""Errors that mean that memory ran out, and the least memory that the program needs."""

import errno
from typing import Final

from structattn.support.errors import StructattnError

MIN_ADDRESS_SPACE: Final = 1 << 30  # bytes; torch and the BLAS of NumPy end the process when they cannot be loaded
_MESSAGES: Final = (
    "can't allocate memory",  # torch
    "can't start new thread",  # Python; a thread needs a stack
    "cannot allocate memory",
    "failed to map segment",  # the loader of shared libraries
    "MemoryError",  # a panic of a library in Rust that quotes Python's error
    "OutOfMemory",
    "Resource temporarily unavailable",  # a panic because a thread could not be started
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: Python's error, torch's, the operating system's, or a panic of a Rust library."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM or "failed to map segment" in str(error)
    if isinstance(error, SystemError):  # of code in C that does not check whether it got memory
        return _address_space() is not None
    can_be = isinstance(error, RuntimeError | ImportError) or type(error).__name__ == "PanicException"
    return can_be and any(message.lower() in str(error).lower() for message in _MESSAGES)


def out_of_memory_message(error: BaseException) -> str:
    """Return one line that says that memory ran out and what to do."""
    limit = _address_space()
    raise_it = "" if limit is None else f", or raise the limit on address space ({limit >> 20} MiB; ulimit -v)"
    reason = " ".join(str(error).split())
    message = f"out of memory; use smaller batches, a smaller model or fewer runs at once{raise_it}"
    return f"{message} ({reason})" if reason else message


def require_address_space() -> None:
    """Check that the limit on address space, if there is one, leaves enough to load the libraries.

    Raises:
        StructattnError: it is below ``MIN_ADDRESS_SPACE``.
    """
    limit = _address_space()
    if limit is not None and limit < MIN_ADDRESS_SPACE:
        raise StructattnError(
            f"out of memory: the limit on address space is {limit >> 20} MiB; expected at least "
            f"{MIN_ADDRESS_SPACE >> 20} MiB; raise it (ulimit -v)"
        )


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # on Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
