"""Base class of all settings, unions of settings classes, and suggestions for misspelt fields."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Union, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import ErrorDetails

from structattn.support.reading import MAX_INTEGER

MAX_LAYERS = 1_000
"""The maximum number of layers of one part of a model."""
MAX_SIZE = 1_000_000
"""The maximum size of a vector, table, batch or window; more is a mistake and would only exhaust memory."""

Positive = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
NumLayers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Seed = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Probability = Annotated[float, Field(ge=0, lt=1)]


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


_MAX_DEPTH = 8  # of nested settings


@cache
def _known_paths(settings: type[BaseModel]) -> frozenset[str]:
    """Return the dotted paths of all fields; ``*`` stands for the number of an item of a list."""
    return frozenset(_paths(settings, "", _MAX_DEPTH))


def _paths(settings: type[BaseModel], prefix: str, depth: int) -> Iterator[str]:
    for name, field in settings.model_fields.items():
        yield prefix + name
        for member, is_item in _members(field.annotation, False):
            if depth:
                yield from _paths(member, f"{prefix}{name}.{'*.' * is_item}", depth - 1)


def _members(annotation: Any, is_item: bool) -> Iterator[tuple[type[BaseModel], bool]]:
    """Yield the settings classes of an annotation, and whether they are items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, is_item
    in_list = is_item or getattr(annotation, "__origin__", None) in (list, tuple)
    for argument in get_args(annotation):
        yield from _members(argument, in_list)


def suggestion(settings: type[BaseModel], path: str) -> str | None:
    """Return the path of the field that an unknown one may mean; None if there is nothing similar.

    That is the most similar field of the same group of settings, else one of the same or a similar name in another.

    Args:
        settings: the class of all settings.
        path: the dotted path of the unknown field.
    """
    pattern = re.sub(r"\.\d+(?=\.|$)", ".*", path)
    parent, dot, name = pattern.rpartition(".")
    # The path itself may be a field of another kind, say of another model.
    others = _known_paths(settings) - {pattern}
    known = sorted(others, key=lambda each: (each.count("."), each))
    siblings = {each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == parent}
    if found := get_close_matches(name, siblings, n=1, cutoff=0.7):
        return path.rpartition(".")[0] + dot + found[0]
    names: dict[str, str] = {}
    for each in known:
        names.setdefault(each.rpartition(".")[2], each)
    found = get_close_matches(name, names, n=1, cutoff=0.8)
    return names[found[0]] if found else None
