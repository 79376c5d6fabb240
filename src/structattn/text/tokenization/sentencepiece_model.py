"""SentencePiece models (Kudo & Richardson 2018): a space is written ``▁`` and precedes its word."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from structattn.support.errors import UsageError
from structattn.text.tokenization.optional_libraries import import_library
from structattn.text.tokenization.sentencepiece_proto import disable_pieces

SPACE: Final = "▁"
_STAND_IN, _ESCAPE = "\ue000", "\ue001"  # for private use: what they mean in a text is left to its author
_ESCAPED = {SPACE: _STAND_IN, _STAND_IN: _ESCAPE + _STAND_IN, _ESCAPE: _ESCAPE + _ESCAPE}
_TO_ESCAPE = re.compile(f"[{''.join(_ESCAPED)}]")
_TO_UNESCAPE = re.compile(f"{_ESCAPE}([{_STAND_IN}{_ESCAPE}])|{_STAND_IN}")
_NO_DROPOUT = "subword dropout needs level bpe: SentencePiece's random segmentation is not reproducible"


@dataclass(frozen=True)
class SentencePieceModel:
    """A SentencePiece model whose pieces never cross spaces; implements ``SubwordModel``.

    SentencePiece itself would take ``▁`` in a text for a space. Here U+E000 stands for it in pieces, and U+E001
    precedes U+E000 and U+E001 that are in the text, so that every line can be decoded.

    Args:
        model: the bytes of the model file, a protocol buffer; loading it runs no code.
        kept: the pieces that ``segment`` may return; None for all. Single characters are always allowed.
    """

    model: bytes = field(repr=False)
    kept: frozenset[str] | None = None

    @cached_property
    def _processor(self) -> Any:
        sentencepiece = import_library("sentencepiece", "applying a SentencePiece model")
        model = self.model if self.kept is None else disable_pieces(self.model, self.kept)
        return sentencepiece.SentencePieceProcessor(model_proto=model)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """All pieces of the model."""
        processor = self._processor
        return tuple(processor.id_to_piece(index) for index in range(processor.get_piece_size()) if index)

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that determines how a line is segmented."""
        kept = None if self.kept is None else sorted(self.kept)
        return hashlib.sha256(self.model + repr(kept).encode()).hexdigest()

    def restrict(self, kept: Iterable[str]) -> "SentencePieceModel":
        """Return the same model restricted to these pieces."""
        return replace(self, kept=frozenset(kept))

    def pretokenize(self, line: str) -> list[str]:
        """Return the words of a line, with ``▁`` escaped."""
        escaped = _TO_ESCAPE.sub(lambda found: _ESCAPED[found[0]], line)
        return [word for word in escaped.split(" ") if word]

    def segment(self, pretoken: str, draws: Iterator[float] | None = None, rate: float = 0.0) -> list[str]:
        """Segment a word into pieces.

        Raises:
            UsageError: dropout is requested.
        """
        if draws is not None or rate:
            raise UsageError(_NO_DROPOUT)
        pieces: list[str] = self._processor.encode(pretoken, out_type=str)
        return pieces

    def segment_all(self, pretokens: Sequence[str]) -> list[list[str]]:
        """Segment many words at once; equal to ``segment`` on each."""
        pieces: list[list[str]] = self._processor.encode(list(pretokens), out_type=str)
        return pieces

    def pretokens_of(self, pieces: Iterable[str]) -> list[str]:
        """Refuse: only dropout needs the words that pieces came from.

        Raises:
            UsageError: always.
        """
        raise UsageError(_NO_DROPOUT)

    def decode(self, pieces: Iterable[str]) -> str:
        """Decode pieces to a line."""
        line = " ".join(word for word in "".join(pieces).split(SPACE) if word)
        return _TO_UNESCAPE.sub(lambda found: found[1] or SPACE, line)
