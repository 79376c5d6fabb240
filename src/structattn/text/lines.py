"""Texts as ids of lines: one line, or several where the model was trained on a stream of lines."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from structattn.settings.run import RunSettings
from structattn.settings.training import StreamBatches
from structattn.support.errors import DataError
from structattn.support.special_tokens import UNK
from structattn.text.tokenization.tokenizers import TextError
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary

_logger = logging.getLogger("structattn")


class Encoder(Protocol):
    """A tokenizer, with or without normalization."""

    def encode(self, line: str) -> list[int]:
        """Return the ids of a line."""


def is_stream(settings: RunSettings) -> bool:
    """Return whether a run was trained on a stream of lines."""
    return isinstance(settings.training.batches, StreamBatches)


def ids_of_lines(encoder: Encoder, settings: RunSettings, text: str, path: Path, number: int) -> list[list[int]]:
    """Return the ids of each line of a text, without special tokens; a text is one line unless the data are a stream.

    Raises:
        DataError: a line cannot be encoded.
    """
    lines = text.split("\n") if is_stream(settings) else [text]
    return [encoded(encoder, line, path, number) for line in lines]


def encoded(encoder: Encoder, text: str, path: Path, number: int) -> list[int]:
    """Return the ids of a line.

    Args:
        encoder: encodes it.
        text: the line.
        path: of its file, for messages.
        number: of the line in the file, for messages.

    Raises:
        DataError: it has a line feed, or cannot be encoded.
    """
    require_one_line(text, path, number)
    try:
        return encoder.encode(text)
    except TextError as error:
        raise DataError(path, f"{text!r:.60}: {error.reason}", number) from None


def require_one_line(text: str, path: Path, number: int) -> None:
    """Raise DataError if a line has a line feed, as those that are read from a file."""
    if "\n" in text:
        raise DataError(path, f"{text!r:.60}: has a line feed; expected one line without its end", number)


def warn_of_unknown_tokens(
    vocabulary: Vocabulary, texts: Sequence[str], ids: Sequence[Sequence[int]], path: Path, first: int
) -> None:
    """Log how many tokens of some texts are outside the vocabulary, if there are any beside those written ``<unk>``.

    Args:
        vocabulary: of the run; one without ``<unk>`` has none.
        texts: as given.
        ids: of their tokens.
        path: of the texts.
        first: the number of the first text.
    """
    if not vocabulary.has_unknown:
        return
    counts = [list(each).count(UNK) - text.count(UNKNOWN_SYMBOL) for text, each in zip(texts, ids, strict=True)]
    if unknown := sum(counts):
        line = next(number for number, count in enumerate(counts, start=first) if count)
        total = sum(map(len, ids))
        message = "%s: %d of %d tokens are not in the vocabulary and are read as %s, the first in line %d"
        _logger.warning(message, path, unknown, total, UNKNOWN_SYMBOL, line)
