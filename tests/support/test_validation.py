"""Words about values that pydantic refused."""

import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import structattn
from structattn.settings.base import words_of
from structattn.support.errors import quoted
from structattn.support.validation import first_problem

PACKAGES = {"explorer", "runs", "settings", "sweeps", "tasks", "text", "training"}
WRONG = (
    None,
    "x",
    "",
    " ",
    "x" * 200,
    "1" * 5000,
    True,
    2.5,
    -(10**9),
    10**17,
    float("nan"),
    [],
    {},
    [1, 2],
    [None] * 500,
)
OWN_WORDS = re.compile("expected |missing|no such field|.* is not one of ", re.DOTALL)


class Shape(BaseModel):
    """A class with a field of each kind."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.5
    size: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    name: Annotated[str, Field(min_length=1, max_length=4)] = "name"
    betas: Annotated[tuple[float, ...], Field(min_length=1, max_length=2)] = (0.9,)
    kind: Literal["first", "second"] = "first"
    flag: bool = False


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"rate": 0}, "rate: expected more than 0"),
        ({"rate": 1}, "rate: expected less than 1"),
        ({"rate": "high"}, "rate: expected a number"),
        ({"rate": float("inf")}, "rate: expected a finite number"),
        ({"size": 0}, "size: expected at least 1"),
        ({"size": 2_000_000}, "size: expected at most 1000000"),
        ({"size": 1.5}, "size: expected an integer"),
        ({"name": ""}, "name: expected text that is not empty"),
        ({"name": "longer"}, "name: expected at most 4 characters"),
        ({"name": 3}, "name: expected text"),
        ({"betas": ()}, "betas: expected at least one item"),
        ({"betas": (1, 2, 3)}, "betas: expected at most 2 items"),
        ({"betas": (1, "x")}, "betas.1: expected a number"),
        ({"kind": "third"}, "kind: expected 'first' or 'second'"),
        ({"flag": "perhaps"}, "flag: expected true or false"),
        ({"other": 1}, "other: no such field"),
        ([], "the file: expected an object"),
    ],
)
def test_words(given, problem):
    with pytest.raises(ValidationError) as caught:
        Shape.model_validate(given)
    assert first_problem(caught.value) == problem


def test_words_of_pydantic_never_appear():
    """All fields of all classes that the library validates input with, and wrong values of all kinds."""
    for module in walk_packages(structattn.__path__, "structattn."):
        if module.name.split(".")[1] in PACKAGES:
            import_module(module.name)
    models = [each for each in _subclasses(BaseModel) if each.__module__.startswith("structattn.")]
    problems = [problem for model in models for problem in _problems(model)]
    strange = [each for each in problems if each["type"] != "value_error" and not OWN_WORDS.match(words_of(each))]
    assert len(models) > 100
    assert strange == []


def _subclasses(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from _subclasses(each)


def _problems(model: type[BaseModel]) -> Iterator:
    for given in [*WRONG, *[{name: value} for name in (*model.model_fields, "unknown") for value in WRONG]]:
        try:
            model.model_validate(given)
        except ValidationError as error:
            yield from error.errors(include_url=False)
        except KeyError:
            pass  # the arrays of a recording are its context


def test_long_values_are_cut_inside_of_their_quotes():
    assert quoted("a" * 58) == repr("a" * 58)
    assert quoted("a" * 59) == "'" + "a" * 57 + "…'"
    assert quoted(["x"] * 40, 20) == "['x', 'x', 'x', 'x…]"
