"""The promise that the weights of models do not change, so that what is made of them is made once."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Made = TypeVar("Made")

_kept: ContextVar[dict[Hashable, Any] | None] = ContextVar("made_of_constant_weights", default=None)


@contextmanager
def weights_unchanged() -> Iterator[None]:
    """Promise that no weight of a model changes, in this thread; around several batches, decoding is faster then."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def keep_if_unchanged(owner: Hashable, make: Callable[[], Made]) -> Made:
    """Return what ``make`` returns, or what it returned for this owner since weights do not change."""
    kept = _kept.get()
    if kept is None:
        return make()
    if owner not in kept:
        kept[owner] = make()
    made: Made = kept[owner]
    return made
