"""Lines of text: splitting and normalization before tokenization."""

import logging
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol

from structattn.settings.run import RunSettings
from structattn.settings.training import StreamBatches
from structattn.support.errors import DataError, quoted
from structattn.support.special_tokens import UNK
from structattn.text.tokenization.tokenizers import TextError
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary


@dataclass(frozen=True)
class Normalization:
    """Normalizes a line: Unicode form, case, and single spaces between words, none at the ends.

    Words are separated by spaces and tabs; NFKC turns most other spaces, such as U+00A0 and U+3000, into spaces.
    """

    nfkc: bool = True
    lowercase: bool = False

    def __call__(self, line: str) -> str:
        """Return the normalized line; normalizing it again changes nothing."""
        text = self.characters(line)
        if "\t" not in text and "  " not in text and text[:1] != " " and text[-1:] != " ":
            return text
        return " ".join(word for word in text.replace("\t", " ").split(" ") if word)

    def characters(self, text: str) -> str:
        """Return one or more lines with normalized characters, but spaces and tabs as they are.

        Neither NFKC nor lower case depends on what is beyond a line feed, so lines can be normalized together.
        """
        normalized = self._nfkc(text)
        return self._nfkc(normalized.lower()) if self.lowercase else normalized

    def _nfkc(self, text: str) -> str:
        return unicodedata.normalize("NFKC", text) if self.nfkc else text

    def description(self) -> dict[str, bool]:
        """Return the fields that the header of a prepared folder stores."""
        return asdict(self)


MAX_CHARACTERS: Final = 1 << 20
"""The maximum length of a line that a model is given: its tokens take far more memory than the line."""
_logger = logging.getLogger("structattn")
_WORD: Final = re.compile(r"[^ \t\n]+")


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

    Raises:
        DataError: it has a line feed or more than ``MAX_CHARACTERS``, or cannot be encoded.
    """
    if len(text) > MAX_CHARACTERS:
        raise DataError(path, f"has {len(text):,} characters; expected at most {MAX_CHARACTERS:,} in a line", number)
    if "\n" in text:
        raise DataError(path, f"{quoted(text)}: has a line feed; expected one line without its end", number)
    try:
        return encoder.encode(text)
    except TextError as error:
        raise DataError(path, f"{quoted(text)}: {error.reason}", number) from None


class Reader(Protocol):
    """What reads texts; see ``TextTokenizer``."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Its vocabulary."""

    @property
    def unknown_ids(self) -> tuple[int, ...]:
        """The ids of ``<unk>`` and of the classes of unknown words."""

    @property
    def reads_words(self) -> bool:
        """Whether its tokens are words, so that a word ``<unk>`` is one."""

    def normalized(self, line: str) -> str:
        """Return a line as it is read."""


def warn_of_unknown_tokens(
    reader: Reader, texts: Sequence[str], ids: Sequence[Sequence[int]], path: Path, numbers: Iterable[int]
) -> None:
    """Log how many tokens of some texts are ``<unk>`` or a class, and not written so, if there are any.

    ``numbers``: the line of each text in ``path``.
    """
    unknown_ids = set(reader.unknown_ids)
    names = set(reader.vocabulary.symbols_of(unknown_ids)) if reader.reads_words else set[str]()

    def num_unknown(text: str, ids: Sequence[int]) -> int:
        words = _WORD.findall(reader.normalized(text))
        return sum(token in unknown_ids for token in ids) - sum(word in names for word in words)

    counts = [num_unknown(*each) for each in zip(texts, ids, strict=True)] if unknown_ids else []
    if unknown := sum(counts):
        line = next(number for number, count in zip(numbers, counts, strict=False) if count)
        total = sum(map(len, ids))
        read_as = UNKNOWN_SYMBOL if unknown_ids == {UNK} else f"{UNKNOWN_SYMBOL} or classes of unknown words"
        message = "%s: %d of %d tokens are not in the vocabulary and are read as %s, the first in line %d"
        _logger.warning(message, path, unknown, total, read_as, line)
