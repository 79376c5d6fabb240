"""Results for lists of texts, and for streams, which are read as far as needed."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from structattn.support.errors import UsageError

TEXTS_AT_ONCE: Final = 4096
"""The number of texts that are sorted and computed together; the results do not depend on it."""

TEXTS: Final = Path("texts")  # in messages, in place of the path of a file, as below
TARGETS: Final = Path("targets")

Text = TypeVar("Text")
Result = TypeVar("Result")


def require_no_string(texts: object) -> None:
    """Raise UsageError for a single string, which would be taken for the list of its characters."""
    if isinstance(texts, str):
        raise UsageError(f"got the text {texts!r:.60}; expected a list or an iterator of texts")


def in_chunks(
    texts: Iterable[Text], function: Callable[[list[Text], int], list[Result]], size: int = TEXTS_AT_ONCE
) -> Iterator[Result]:
    """Yield the result of each text, in their order; at most ``size`` texts are read ahead.

    Args:
        texts: read as the results are asked for.
        function: takes some texts and the number of the first of them, counted from 1; returns a result for each.
        size: the number of texts that ``function`` is given at once.

    Raises:
        UsageError: ``texts`` is a single string.
    """
    require_no_string(texts)
    rest, done = iter(texts), 0
    while chunk := list(islice(rest, size)):
        yield from function(chunk, done + 1)
        done += len(chunk)
