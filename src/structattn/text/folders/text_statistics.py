"""The size of the text of a split, and the share of ``<unk>``, as the header of a prepared folder states them."""

from dataclasses import dataclass, fields
from typing import Any, Final

from structattn.support.errors import DataError
from structattn.support.reading import MAX_COUNT
from structattn.text.folders.header import HEADER_NAME
from structattn.text.folders.prepared import PreparedFolder

STATISTICS: Final = "text"
LARGE_UNKNOWN_SHARE: Final = 0.05
"""Above this share of ``<unk>``, scores say little about the text."""


@dataclass(frozen=True)
class TextStatistics:
    """What was read and kept of the text of a split.

    tokens_read = tokens_kept + tokens_cut + tokens_dropped.

    Args:
        lines_read: the number of lines.
        lines_skipped: the number of those that are empty and not stored.
        words: the number of words, which spaces and tabs separate, as in the file.
        characters: the number of code points, without line feeds.
        bytes: the number of bytes in UTF-8, without line feeds.
        tokens_read: the number of tokens of all lines, without ``<eos>``.
        tokens_kept: the number of those that are stored.
        tokens_cut: the number of those beyond the last whole block.
        tokens_dropped: the number of those of dropped lines.
    """

    lines_read: int = 0
    lines_skipped: int = 0
    words: int = 0
    characters: int = 0
    bytes: int = 0
    tokens_read: int = 0
    tokens_kept: int = 0
    tokens_cut: int = 0
    tokens_dropped: int = 0

    def targets_per(self, units: int) -> float:
        """Return predicted tokens per unit, for the number of words, characters or bytes; a line's end is one more."""
        lines = self.lines_read - self.lines_skipped
        return (self.tokens_read - self.tokens_dropped + lines) / max(1, units + lines)


def text_statistics(prepared: PreparedFolder, split: str) -> TextStatistics | None:
    """Return the statistics of a split; None for other data, and for text of earlier versions.

    Raises:
        DataError: the header's numbers are damaged.
    """
    of_splits: Any = prepared.header.extra.get(STATISTICS)
    if of_splits is None:
        return None
    values: Any = of_splits.get(split) if isinstance(of_splits, dict) else None
    names = [field.name for field in fields(TextStatistics)]
    fits = isinstance(values, dict) and set(values) == set(names)
    if not fits or not all(type(value) is int and 0 <= value <= MAX_COUNT for value in values.values()):
        reason = f"{STATISTICS}.{split}: expected the counts {', '.join(names)}"
        raise DataError(prepared.path / HEADER_NAME, reason)
    return TextStatistics(**values)


def unknown_share(prepared: PreparedFolder, split: str) -> float | None:
    """Return the share of ``<unk>`` among the tokens of a split of text; None if the header does not state it."""
    count, counts = prepared.header.count("unknown_tokens", split), prepared.header.splits.get(split)
    return None if count is None or counts is None else count / max(1, counts.tokens)
