"""Pieces of SentencePiece (Kudo & Richardson 2018): spaces are spelt ``▁`` and stand before the word."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from structattn.data.tokenization.sentencepiece_model import with_unused
from structattn.support.errors import UsageError

SPACE: Final = "▁"
_NO_DROPOUT = "dropout of subwords needs level bpe: what SentencePiece draws cannot be repeated"


@dataclass(frozen=True)
class SentencePieces:
    """A model of SentencePiece; pieces never cross spaces.

    A ``▁`` of the text itself is read as a space: that is SentencePiece's way.

    Args:
        model: the bytes of its file, a protocol buffer; reading it runs no code.
        kept: the pieces that may come out, where not all may; single characters do in any case.
    """

    model: bytes = field(repr=False)
    kept: frozenset[str] | None = None

    @cached_property
    def _processor(self) -> Any:
        try:
            import sentencepiece
        except ImportError as error:
            reason = f"sentencepiece is not there ({error}); pip install 'structattn[mt]'"
            raise UsageError(f"this text was cut with a library that is optional: {reason}") from None
        model = self.model if self.kept is None else with_unused(self.model, self.kept)
        return sentencepiece.SentencePieceProcessor(model_proto=model)

    @cached_property
    def products(self) -> tuple[str, ...]:
        """All pieces of the model."""
        processor = self._processor
        return tuple(processor.id_to_piece(index) for index in range(processor.get_piece_size()) if index)

    @property
    def digest(self) -> str:
        """The SHA-256 of all that decides how a line is cut."""
        kept = None if self.kept is None else sorted(self.kept)
        return hashlib.sha256(self.model + repr(kept).encode()).hexdigest()

    def restricted(self, kept: Iterable[str]) -> "SentencePieces":
        """The same model, with only these pieces coming out."""
        return replace(self, kept=frozenset(kept))

    def units(self, line: str) -> list[str]:
        """The words of a line."""
        return [word for word in line.replace(SPACE, " ").split(" ") if word]

    def segment(self, unit: str, draws: Iterator[float] | None = None, rate: float = 0.0) -> list[str]:
        """Cut a unit into pieces; nothing can be drawn, see ``rejoined``."""
        if draws is not None or rate:
            raise UsageError(_NO_DROPOUT)
        pieces: list[str] = self._processor.encode(unit, out_type=str)
        return pieces

    def rejoined(self, pieces: Iterable[str]) -> list[str]:
        """Refused: this is asked for dropout alone.

        Raises:
            UsageError: always.
        """
        raise UsageError(_NO_DROPOUT)

    def text(self, pieces: Iterable[str]) -> str:
        """The line that pieces stand for."""
        return " ".join(word for word in "".join(pieces).split(SPACE) if word)
