"""Checks that parsed JSON has the expected fields and types."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from structattn.support.errors import DataError


class Shape(BaseModel):
    """Fields that an object must have, without conversions; further fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


def check_shape(shape: type[Shape], content: dict[str, Any], path: Path, line: int | None = None) -> dict[str, Any]:
    """Return ``content`` unchanged if it has a shape.

    Args:
        shape: the expected shape.
        content: the content of a file.
        path: the file, for the message.
        line: its line, for the message.

    Raises:
        DataError: a field is missing or invalid; the message names the first one.
    """
    try:
        shape.model_validate(content)
    except ValidationError as error:
        raise DataError(path, first_problem(error), line) from None
    return content


def first_problem(error: ValidationError) -> str:
    """Return the dotted path of the first invalid field, and what is wrong with it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "the file"
    return f"{field}: {first['msg']}"
