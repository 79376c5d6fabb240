"""Base class of all settings, and unions of settings classes."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Union

from pydantic import BaseModel, ConfigDict, Discriminator, Tag
from pydantic_core import ErrorDetails

MAX_LAYERS = 1_000
"""The maximum number of layers of one part of a model."""
MAX_SIZE = 1_000_000
"""The maximum size of a vector, table, batch or window; more is a mistake and would only exhaust memory."""


class Settings(BaseModel):
    """Frozen group of settings; unknown keys, infinities and NaN are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


def words_of(problem: ErrorDetails) -> str:
    """Return what is wrong with a value, without pydantic's terms."""
    match problem["type"]:
        case "extra_forbidden":
            return "no such field"
        case "union_tag_invalid":
            tag, expected = problem["ctx"]["tag"], problem["ctx"]["expected_tags"].replace("'", "").split(", ")
            return f"{tag!r} is not one of {', '.join(expected)}{did_you_mean(tag, expected)}"
        case "union_tag_not_found" | "model_type" | "dict_type":
            return "expected settings, as {field: value}"
    return problem["msg"].removeprefix("Value error, ")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that names the known name that is most similar; empty if none is."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"; did you mean {found[0]}?" if found else ""


def from_name(value: Any) -> Any:
    """Convert the name of a kind to settings of that kind with default values; return other values unchanged."""
    return {"kind": value} if isinstance(value, str) else value


def discriminated_by(field: str, default: str) -> Discriminator:
    """Return a discriminator that selects the member of a union by the value of ``field``.

    Args:
        field: the name of the field.
        default: the tag of the member that is selected if the field is missing.
    """

    def kind(value: Any) -> Any:
        return value.get(field, default) if isinstance(value, dict) else getattr(value, field, None)

    return Discriminator(kind)


def union_of(members: Mapping[str, type[Settings]], field: str, default: str) -> Any:
    """Return the union of settings classes as a type annotation; the value of ``field`` selects the class.

    Args:
        members: value of ``field`` -> settings class, at least two.
        field: the name of the field.
        default: the value that is assumed if the field is missing.
    """
    # A type that is built at run time: type checkers see Any and need an alias where they should know more.
    tagged = tuple(Annotated[each, Tag(name)] for name, each in members.items())
    return Annotated[Union[tagged], discriminated_by(field, default)]  # noqa: UP007
