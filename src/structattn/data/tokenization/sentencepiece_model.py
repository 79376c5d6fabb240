"""Two changes to the bytes of a SentencePiece model.

The model is a protocol buffer (sentencepiece_model.proto): field 1, repeated, is a piece, in which field 1 is the text
and field 3 the type; field 2 says how it was learnt, and begins with the path of the text.
"""

from collections.abc import Container, Iterator

_PIECES, _LEARNING, _TEXT, _BYTES = 1, 2, 1, 2
_UNUSED = bytes((3 << 3, 5))


def with_unused(model: bytes, kept: Container[str]) -> bytes:
    """The same model; its pieces of more than one character that are not kept can no more come out.

    They get type 5, UNUSED, as by SentencePiece's own vocabulary restriction: a field given twice counts as given last.

    Raises:
        ValueError: the bytes are no such model.
    """
    changed = bytearray()
    for index, (field, body) in enumerate(_fields(model)):
        unused = index > 0 and field == _PIECES and _is_unused(body, kept)  # the first piece is <unk>
        changed += _field(field, body + _UNUSED if unused else body)
    return bytes(changed)


def without_path(model: bytes, path: str) -> bytes:
    """The same model without the path of the text that it was learnt from, so that the same text gives the same bytes.

    Raises:
        ValueError: the bytes are no such model.
    """
    found = _field(_TEXT, path.encode())
    return b"".join(
        _field(field, body.removeprefix(found) if field == _LEARNING else body) for field, body in _fields(model)
    )


def _field(number: int, body: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(body)) + body


def _is_unused(piece: bytes, kept: Container[str]) -> bool:
    text = _text(piece)
    return len(text) > 1 and text not in kept


def _text(piece: bytes) -> str:
    key, start = _varint(piece, 0)
    length, start = _varint(piece, start)
    if key != (_TEXT << 3 | _BYTES):
        raise ValueError("a piece does not begin with its text")
    return piece[start : start + length].decode()


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and content of each field of a message that has nothing but lengthy ones, as a model does."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        length, at = _varint(message, at)
        if key & 7 != _BYTES or at + length > len(message):
            raise ValueError(f"byte {at}: not a field of a model")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number written in groups of seven bits, lowest first, and the index after it."""
    value = shift = 0
    while True:
        if at >= len(message):
            raise ValueError(f"byte {at}: the model ends within a number")
        value |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return value, at


def _number(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes((*groups, value))
