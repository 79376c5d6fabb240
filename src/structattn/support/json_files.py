"""JSON files: digests of their content, by which a damaged or exchanged file is recognized, and checks of fields."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from structattn.support.errors import DataError
from structattn.support.files import replace_file
from structattn.support.reading import content_of, parse_json
from structattn.support.validation import first_problem


class Shape(BaseModel):
    """Fields that an object must have, without conversions; further fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


def check_shape(shape: type[Shape], content: dict[str, Any], path: Path, line: int | None = None) -> dict[str, Any]:
    """Return ``content`` unchanged if it has a shape.

    Raises:
        DataError: a field is missing or invalid; the message names the first one.
    """
    try:
        shape.model_validate(content)
    except ValidationError as error:
        raise DataError(path, first_problem(error), line) from None
    return content


DIGEST: Final = "sha256"
"""The key of the digest, the last of the object."""


def content_digest(kind: str, name: str, content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a file's kind, name and content; layout does not count, the order of keys does."""
    return hashlib.sha256(f"{kind}/{name}\n{json.dumps(content, allow_nan=False)}".encode()).hexdigest()


def json_with_digest(kind: str, name: str, content: Mapping[str, Any], indent: int | None = 1) -> str:
    """Return the text of a file: one JSON object, its digest last.

    Args:
        kind: of the content, so that files of different kinds cannot be exchanged.
        name: of the file.
        content: what JSON can hold.
        indent: spaces for each level; None: one line.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    whole = {**content, DIGEST: content_digest(kind, name, content)}
    return json.dumps(whole, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write an object with its digest to a file of a run or a sweep, atomically; see ``json_with_digest``.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    replace_file(path, json_with_digest(kind, path.name, content))


def load_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: the file cannot be read, or is not JSON within the limits of ``parse_json``.
    """
    return _parsed(content_of(path), path, None)


def parse_object(text: bytes, path: Path, line: int | None = None) -> dict[str, Any]:
    """Parse a JSON object, the content of a file or one of its lines.

    Raises:
        DataError: it is not an object, or not JSON within the limits of ``parse_json``.
    """
    return _object(_parsed(text, path, line), path, line)


def _parsed(text: bytes, path: Path, line: int | None) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(path, f"not JSON: {error}", line) from None


def _object(content: Any, path: Path, line: int | None) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise DataError(path, f"holds {type(content).__name__}; expected a JSON object", line)
    return content


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """Read an object that ``write_json`` wrote, without its digest.

    Raises:
        DataError: the file cannot be read, is not a JSON object, or does not have the digest that it states.
    """
    return without_digest(load_json(path), path, kind, path.name)


def without_digest(content: Any, path: Path, kind: str, name: str, line: int | None = None) -> dict[str, Any]:
    """Return the object in a file, or in a line of it, without its digest, which was computed for ``name``.

    Raises:
        DataError: it is not an object, or does not have the digest that it states.
    """
    tree = _object(content, path, line)
    stated, computed = tree.pop(DIGEST, None), content_digest(kind, name, tree)
    if stated != computed:
        reason = f"changed since it was written: its content has the SHA-256 {computed}, not {stated!s:.64}"
        raise DataError(path, reason, line)
    return tree
