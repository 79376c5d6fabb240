"""The field that a misspelt or misplaced one may mean."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

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
