"""What is wrong with values that pydantic refused, in the words of this library's messages."""

from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_EXPECTED: Final = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "an object",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of fewer digits",
    "int_type": "an integer",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "path_type": "a path",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "string_type": "text",
    "too_long": "at most {max_length} items",
    "too_short": "at least {min_length} items",
    "tuple_type": "a list",
}
_NOT_EMPTY: Final = {"at least 1 characters": "text that is not empty", "at least 1 items": "at least one item"}


def words_of(problem: ErrorDetails) -> str:
    """Return what is wrong with a value: what was expected of it, or the words of the check that refused it."""
    kind = problem["type"]
    if kind == "missing":
        return "missing"
    if kind == "extra_forbidden":
        return "no such field"
    if kind not in _EXPECTED:
        return problem["msg"].removeprefix("Value error, ")
    expected = _EXPECTED[kind].format(**{name: _plain(value) for name, value in problem.get("ctx", {}).items()})
    return f"expected {_NOT_EMPTY.get(expected, expected)}"


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value  # 0 rather than 0.0


def first_problem(error: ValidationError, whole: str = "the file") -> str:
    """Return the dotted path of the first invalid field, ``whole`` if it is none, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or whole
    return f"{field}: {words_of(first)}"
