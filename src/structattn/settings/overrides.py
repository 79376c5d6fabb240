"""Overrides ``path.to.field=value`` of settings, and messages about wrong values that name the override or the file."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from structattn.settings.base import Settings, hint_for_name, hint_for_unknown, words_of
from structattn.settings.yaml import parse_yaml
from structattn.support.errors import SettingsError

MAX_PATH_PARTS = 32
_MAX_PROBLEMS = 10  # in an error message

_FOLDERS = ("data", "model.pretrained")  # whose names may look like numbers or truth values


def assign(tree: dict[str, Any], assignment: str) -> None:
    """Apply an override ``path.to.field=value`` to nested mappings; the value is parsed as YAML, unless it is a folder.

    Raises:
        SettingsError: the override is malformed.
    """
    path, separator, text = assignment.partition("=")
    if not separator or not path:
        raise SettingsError(f"{assignment!r}: expected path.to.field=value")
    try:
        value = text if path in _FOLDERS and text != "null" else parse_yaml(text)
    except ValueError as error:
        raise SettingsError(f"{path}: {_shorten(repr(text), 100)} is not a YAML value: {error}") from None
    set_path(tree, path, value)


def set_path(tree: dict[str, Any], path: str, value: object) -> None:
    """Set the field ``path.to.field`` in nested mappings; missing mappings are created.

    Raises:
        SettingsError: a parent of the field is not a mapping, or the path has more than ``MAX_PATH_PARTS`` parts.
    """
    *parents, last = path.split(".")
    if len(parents) >= MAX_PATH_PARTS:
        raise SettingsError(f"{_shorten(path, 100)}: {len(parents) + 1} parts; expected at most {MAX_PATH_PARTS}")
    node = tree
    for name in parents:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise SettingsError(f"{path}: {name!r} is {_shorten(repr(node), 100)}, which has no fields")
    node[last] = value


def _dotted(location: tuple[int | str, ...], missing: bool, tree: object) -> str:
    """Return the dotted path of an error in ``tree``; pydantic's location also names the members of unions."""
    parts = []
    for index, part in enumerate(location):
        if isinstance(tree, dict) and part not in tree and not (missing and index == len(location) - 1):
            continue  # the member of a union, not a field
        if part == tree or str(part).startswith("["):
            continue  # a kind that is given by its name alone; a member of a union without one
        parts.append(str(part))
        tree = _child(tree, part)
    return ".".join(parts) or "(the whole)"


def _child(tree: object, part: int | str) -> object:
    if isinstance(tree, dict):
        return tree.get(part)
    present = isinstance(tree, list) and isinstance(part, int) and part < len(tree)
    return tree[part] if present else None  # type: ignore[index]  # narrowed in `present`


def error_message(
    error: ValidationError,
    tree: object,
    source: str,
    overrides: Sequence[str] = (),
    without_overrides: ValidationError | None = None,
    settings: type[Settings] | None = None,
) -> str:
    """Return pydantic's errors as one message, each with its source (file or override) and dotted path.

    Args:
        error: the errors.
        tree: the settings, with the overrides.
        source: the origin of the settings, for instance a file.
        overrides: the overrides.
        without_overrides: the errors that the settings have without the overrides; None: none.
        settings: the class of the settings; the fields that unknown ones may mean are then named.
    """
    in_source = [(each["type"], each["loc"]) for each in without_overrides.errors()] if without_overrides else []
    lines = []
    problems = [each for each in error.errors() if not _follows_from_others(each)]
    for problem in problems[:_MAX_PROBLEMS]:
        is_name = problem["loc"][-1:] == ("[key]",) and problem["type"] == "string_type"
        location = problem["loc"][: -2 if is_name else None]
        path = _dotted(location, problem["type"] == "missing", tree)
        words, got = words_of(problem), repr(problem["input"])
        hides_input = problem["type"] in {"missing", "extra_forbidden"} or isinstance(problem["input"], dict)
        stated = hides_input or (problem["type"] == "value_error" and got in words)
        given = "" if stated else f", got {_shorten(got, 100)}"
        suspects = [text for text in overrides if _may_set(text, problem["loc"])][-1:]
        if overrides and not suspects and (problem["type"], problem["loc"]) not in in_source:
            suspects = _of_same_group(overrides, problem["loc"]) or list(overrides)
        if suspects[-1:] == [f"{path}="]:
            words, given = f"is empty; {words}", ""
        named = "" if suspects and suspects[-1].partition("=")[0] == path else f": {_shorten(path, 100)}"
        where = f"{_shorten(' '.join(suspects), 100) if suspects else source}{named}"
        hint = "; write it in quotes" if is_name else ""
        if settings is not None and problem["type"] == "extra_forbidden":
            hint = hint_for_unknown(settings, path, problem["loc"])
        if problem["type"] == "literal_error":
            hint = hint_for_name(str(problem["input"]), re.findall("'([^']*)'", problem["ctx"]["expected"]))
        lines.append(f"{where}: {_shorten(words, 500)}{given}{hint}")
    more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(lines) + more


def _follows_from_others(problem: ErrorDetails) -> bool:
    """Return whether items that are reported themselves are missing from the length of a list."""
    return problem["type"] == "too_short" and len(problem["input"]) >= problem["ctx"]["min_length"]


def _shorten(text: str, length: int) -> str:
    """Return a text with at most ``length`` characters, for messages."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _of_same_group(overrides: Sequence[str], location: tuple[int | str, ...]) -> list[str]:
    """Return the overrides of the group of settings, such as ``model``, in which an error is."""
    return [text for text in overrides if location and text.partition("=")[0].split(".")[0] == str(location[0])]


def _may_set(assignment: str, location: tuple[int | str, ...]) -> bool:
    """Return whether an override may have set the field at a location, which also names members of unions."""
    steps = iter(str(part) for part in location)
    return all(part in steps for part in assignment.partition("=")[0].split("."))
