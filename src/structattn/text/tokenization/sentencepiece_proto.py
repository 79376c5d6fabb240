"""Edits to the bytes of a SentencePiece model file.

The file is a protocol buffer (``sentencepiece_model.proto``). Its repeated field 1 is a piece, of which field 1 is the
text and field 3 the type. Its field 2 is the training specification, which begins with the path of the training text.
"""

from collections.abc import Container, Iterator

_PIECES, _TRAINER_SPEC, _TEXT, _LENGTH_DELIMITED = 1, 2, 1, 2
_UNUSED = bytes((3 << 3, 5))


def disable_pieces(model: bytes, kept: Container[str]) -> bytes:
    """Disable the pieces of more than one character that are not in ``kept``.

    They get type 5 (UNUSED), as in SentencePiece's own vocabulary restriction. The type is appended: the last value of
    a protocol buffer field counts.

    Raises:
        ValueError: the bytes are not a SentencePiece model.
    """
    changed = bytearray()
    for index, (field, body) in enumerate(_fields(model)):
        unused = index > 0 and field == _PIECES and _is_unused(body, kept)  # the first piece is <unk>
        changed += _field(field, body + _UNUSED if unused else body)
    return bytes(changed)


def remove_input_path(model: bytes, path: str) -> bytes:
    """Remove the path of the training text, so that training twice on the same text gives the same bytes.

    Raises:
        ValueError: the bytes are not a SentencePiece model.
    """
    found = _field(_TEXT, path.encode())
    return b"".join(
        _field(field, body.removeprefix(found) if field == _TRAINER_SPEC else body) for field, body in _fields(model)
    )


def _field(number: int, body: bytes) -> bytes:
    return _encode_varint(number << 3 | _LENGTH_DELIMITED) + _encode_varint(len(body)) + body


def _is_unused(piece: bytes, kept: Container[str]) -> bool:
    text = _text(piece)
    return len(text) > 1 and text not in kept


def _text(piece: bytes) -> str:
    key, start = _decode_varint(piece, 0)
    length, start = _decode_varint(piece, start)
    if key != (_TEXT << 3 | _LENGTH_DELIMITED):
        raise ValueError("a piece does not begin with its text")
    return piece[start : start + length].decode()


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of each field of a message whose fields are all length-delimited."""
    offset = 0
    while offset < len(message):
        key, offset = _decode_varint(message, offset)
        length, offset = _decode_varint(message, offset)
        if key & 7 != _LENGTH_DELIMITED or offset + length > len(message):
            raise ValueError(f"byte {offset}: not a field of a SentencePiece model")
        yield key >> 3, message[offset : offset + length]
        offset += length


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
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes((*groups, value))
