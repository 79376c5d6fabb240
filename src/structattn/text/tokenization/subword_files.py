"""The files of subwords: BPE, and SentencePiece models (Kudo & Richardson 2018)."""

import hashlib
import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from structattn.support.errors import DataError, UsageError
from structattn.support.files import write_unflushed
from structattn.support.imports import import_library
from structattn.support.reading import content_of, parse_json
from structattn.text.tokenization.byte_pair_encoding import BytePairEncoding
from structattn.text.tokenization.subword_tokenizer import SubwordModel
from structattn.text.tokenization.vocabulary import MAX_FILE_BYTES

SPACE: Final = "▁"
RESERVED_CHARACTER: Final = "▅"
"""U+2585: SentencePiece skips words that contain it in training, and reads them as a piece of their own."""

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
        sentencepiece = import_library("sentencepiece", "mt", "applying a SentencePiece model")
        model = self.model if self.kept is None else disable_pieces(self.model, self.kept)
        return sentencepiece.SentencePieceProcessor(model_proto=model)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """All pieces of the model but the first, which is <unk>.

        Raises:
            ValueError: the bytes are not a SentencePiece model.
        """
        return tuple(_text_of(body) for key, body in _fields(self.model) if key == _PIECE)[1:]

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
        escaped = _TO_ESCAPE.sub(lambda match: _ESCAPED[match[0]], line)
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
        return _TO_UNESCAPE.sub(lambda match: match[1] or SPACE, line)


_PIECE, _UNUSED = 1 << 3 | 2, bytes((3 << 3, 5))


def disable_pieces(model: bytes, kept: Container[str]) -> bytes:
    """Disable the pieces of more than one character that are not in ``kept``.

    They get type 5 (UNUSED), as in SentencePiece's own vocabulary restriction, which its Python package does not have.
    A model is a protocol buffer (``sentencepiece_model.proto``) whose repeated field 1 is a piece, of which field 1 is
    the text and field 3 the type. The type is appended: of two values the last counts.

    Raises:
        ValueError: the bytes are not a SentencePiece model.
    """
    changed = bytearray()
    for key, body in _fields(model):
        text = _text_of(body) if key == _PIECE and changed else ""  # the first piece is <unk>
        field = body + _UNUSED if len(text) > 1 and text not in kept else body
        changed += bytes((key,)) + _encode_varint(len(field)) + field
    return bytes(changed)


def _fields(model: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the key and the content of each field of a model, all of which have a length."""
    offset = 0
    while offset < len(model):
        length, start = _decode_varint(model, offset + 1)
        key, body = model[offset], model[start : start + length]
        if key & 7 != _PIECE & 7 or len(body) < length:
            raise ValueError(f"byte {offset}: not a field of a SentencePiece model")
        yield key, body
        offset = start + length


def _text_of(piece: bytes) -> str:
    if not piece or piece[0] != _PIECE:
        raise ValueError("a piece does not begin with its text")
    length, start = _decode_varint(piece, 1)
    return piece[start : start + length].decode()


def _decode_varint(message: bytes, offset: int) -> tuple[int, int]:
    """Decode a base-128 varint; return its value and the offset after it."""
    value = shift = 0
    while True:
        if offset >= len(message):
            raise ValueError(f"byte {offset}: the model ends within a number")
        value |= (message[offset] & 127) << shift
        shift, offset = shift + 7, offset + 1
        if message[offset - 1] < 128:
            return value, offset


def _encode_varint(value: int) -> bytes:
    return bytes((value,)) if value < 128 else bytes((value & 127 | 128,)) + _encode_varint(value >> 7)


BPE_NAME, SENTENCEPIECE_NAME = "subwords.json", "subwords.model"


def subword_path(level: str, folder: Path, prefix: str) -> Path:
    """Return the file of the subwords of a level in a prepared folder."""
    return folder / (prefix + (BPE_NAME if level == "bpe" else SENTENCEPIECE_NAME))


def save_subword_model(model: SubwordModel, folder: Path, prefix: str) -> None:
    """Write ``subwords.json`` (BPE) or ``subwords.model`` (SentencePiece), without the restriction ``kept``.

    Raises:
        TypeError: the model is neither a ``BytePairEncoding`` nor a ``SentencePieceModel``.
    """
    if isinstance(model, BytePairEncoding):
        content = {"format_version": 1, "marker": model.marker, "merges": model.merges}
        write_unflushed(subword_path("bpe", folder, prefix), json.dumps(content, ensure_ascii=False, indent=0) + "\n")
    elif isinstance(model, SentencePieceModel):
        write_unflushed(subword_path("sentencepiece", folder, prefix), model.model)
    else:
        raise TypeError(f"no file format for {type(model).__name__}")


def load_subword_model(level: str, folder: Path, prefix: str) -> SubwordModel:
    """Read the file that ``save_subword_model`` wrote. Loading it runs no code.

    Raises:
        DataError: the file is missing or damaged.
    """
    path = subword_path(level, folder, prefix)
    try:
        content = content_of(path, MAX_FILE_BYTES)
        model = _parse_merges(parse_json(content)) if level == "bpe" else SentencePieceModel(content)
        model.pieces  # noqa: B018  # checks the content
    except (ValueError, TypeError, KeyError) as error:
        what = "a list of merges" if level == "bpe" else "a SentencePiece model"
        raise DataError(path, f"not {what}: {error!r}") from None
    return model


def _parse_merges(content: Any) -> BytePairEncoding:
    if content["format_version"] != 1:
        raise ValueError(f"format version {content['format_version']!r}; this release reads version 1")
    return BytePairEncoding(tuple(_parse_pair(merge) for merge in content["merges"]), content["marker"])


def _parse_pair(merge: Iterable[Any]) -> tuple[str, str]:
    left, right = merge
    if not (isinstance(left, str) and isinstance(right, str) and left and right):
        raise ValueError(f"{merge!r} is not a pair of pieces")
    return left, right
