"""Threads that share the modules of a model."""

from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")


def in_this_thread(hook: Callable[..., _T]) -> Callable[..., _T | None]:
    """Return a hook that does nothing when other threads call the module. Compiled code calls it in all of them."""
    thread = get_ident()

    @wraps(hook)
    def own(*args: Any) -> _T | None:
        return hook(*args) if torch.compiler.is_compiling() or get_ident() == thread else None

    return own
