"""The files of SyntaxGym's suites: items, whose sentences differ by condition and are cut into regions."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, Field, ValidationError, model_validator

from structattn.support.environment import name_of
from structattn.support.errors import DataError, quoted
from structattn.support.json_files import Shape
from structattn.support.reading import content_of, parse_json
from structattn.support.validation import first_problem
from structattn.tasks.syntaxgym.formula import Formula, parse_formula
from structattn.text.reading import Notices, length_of_mark

METRICS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {"sum": np.sum, "mean": np.mean, "median": np.median, "range": np.ptp, "max": np.max, "min": np.min}
)
"""How the surprisals of the tokens of a region become that of the region; that of a region without tokens is 0."""

CIRCUITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "number": "agreement",
        "npi": "licensing",
        "reflexive": "licensing",
        "mvrr": "garden_path",
        "npz": "garden_path",
        "subordination": "gross_syntactic_state",
        "center": "center_embedding",
        "cleft": "long_distance",
        "fgd": "long_distance",
    }
)
"""The beginning of the name of a suite's file, up to "_" -> its circuit (Hu et al. 2020)."""

NOT_COUNTED: Final = frozenset({"fgd-embed3", "fgd-embed4", "nn-nv-rpl"})
"""Files of suites that the analysis of Hu et al. leaves out, which has 31 of 34."""

STRICT: Final = "_strict"
"""The end of the names of scores of all predictions; others are of the first prediction of each suite."""

_RELATIONS = {"greaterthan": ">", "lessthan": "<"}
_BEGINS_WITH_MARK = re.compile(r"[.,;:?!]")

_Number = Annotated[int, Field(ge=1, le=1_000_000)]
_Name = Annotated[str, Field(min_length=1, max_length=1_000, pattern=r"^[^%]*$")]


class _Region(Shape):
    region_number: _Number
    content: Annotated[str, Field(max_length=10_000)]


class _Condition(Shape):
    condition_name: _Name
    regions: Annotated[list[_Region], Field(min_length=1)]


class _Item(Shape):
    item_number: Annotated[int, Field(ge=0, le=1_000_000)]
    conditions: Annotated[list[_Condition], Field(min_length=1)]


class _Prediction(Shape):
    """A formula, or the older form: the surprisal of one region in two conditions."""

    formula: Annotated[str, Field(max_length=10_000), AfterValidator(parse_formula)]

    @model_validator(mode="before")
    @classmethod
    def _from_relation(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "relation" not in content or "formula" in content:
            return content
        relation = _Relation.model_validate(content)
        left, right = (f"({relation.region_number};%{name}%)" for name in (relation.l_operand, relation.r_operand))
        return {"formula": f"{left} {_RELATIONS[relation.relation]} {right}"}


class _Relation(Shape):
    relation: Literal["greaterthan", "lessthan"]
    region_number: _Number
    l_operand: _Name
    r_operand: _Name


class _Meta(Shape):
    name: Annotated[str, Field(min_length=1, max_length=1_000)]
    metric: Literal["sum", "mean", "median", "range", "max", "min", "all"]


class _Suite(Shape):
    meta: _Meta
    predictions: Annotated[list[_Prediction], Field(min_length=1)]
    items: Annotated[list[_Item], Field(min_length=1)]


@dataclass(frozen=True)
class Item:
    """A group of sentences that differ by condition: condition -> number of a region -> its content."""

    number: int
    conditions: Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class Suite:
    """A suite of items, and what is predicted of the surprisals of each.

    Args:
        name: as the file states it.
        metric: one of ``METRICS``.
        predictions: formulas over regions that all items have.
    """

    name: str
    path: Path
    metric: str
    predictions: tuple[Formula, ...]
    items: tuple[Item, ...]

    @property
    def file(self) -> str:
        """The name of its file, without ``.json``."""
        return name_of(self.path).removesuffix(".json")


def read_suites(path: Path, notices: Notices) -> list[Suite]:
    """Read a suite, or those of a folder, ``*.json``, in the order of their names.

    A byte-order mark is dropped with a notice.

    Raises:
        DataError: there is none, or one is malformed; the message gives the place in it.
    """
    paths = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not paths:
        raise DataError(path, "holds no suites; expected *.json")
    return [_read(each, notices) for each in paths]


def sentence(regions: Sequence[str]) -> str:
    """Return regions as a sentence: separated by spaces, but none before one that begins with a punctuation mark."""
    parts = [region for region in regions if region]
    return "".join(part if _BEGINS_WITH_MARK.match(part) else f" {part}" for part in parts).lstrip()


def _read(path: Path, notices: Notices) -> Suite:
    content = content_of(path)
    try:
        shape = _Suite.model_validate(parse_json(content[length_of_mark(content, path, notices) :]))
    except ValidationError as error:
        raise DataError(path, first_problem(error)) from None
    except ValueError as error:
        raise DataError(path, f"not JSON: {error}") from None
    items = tuple(Item(each.item_number, dict(_conditions(each, path))) for each in shape.items)
    formulas: Any = tuple(each.formula for each in shape.predictions)
    for item in items:
        _require_references(item, formulas, path)
    if len({item.number for item in items}) < len(items):
        raise DataError(path, "two items have the same item_number")
    metric = "sum" if shape.meta.metric == "all" else shape.meta.metric
    return Suite(shape.meta.name, path, metric, formulas, items)


def _conditions(item: _Item, path: Path) -> Iterator[tuple[str, dict[int, str]]]:
    """Yield the regions of each condition by number."""
    seen = set[str]()
    for condition in item.conditions:
        name, where = condition.condition_name, f"item {item.item_number}, condition {quoted(condition.condition_name)}"
        if name in seen:
            raise DataError(path, f"{where}: occurs twice in the item")
        seen.add(name)
        regions = {each.region_number: " ".join(each.content.split()) for each in condition.regions}
        if [*regions] != sorted(each.region_number for each in condition.regions):
            raise DataError(path, f"{where}: the numbers of its regions do not increase")
        if not any(regions.values()):
            raise DataError(path, f"{where}: all its regions are empty")
        yield name, regions


def _require_references(item: Item, formulas: Sequence[Formula], path: Path) -> None:
    """Check that an item has the regions of all predictions."""
    for index, formula in enumerate(formulas):
        for name, number in sorted(formula.references, key=str):
            where = f"predictions.{index}: item {item.number} has no"
            if name not in item.conditions:
                raise DataError(path, f"{where} condition {quoted(name)}; it has {', '.join(item.conditions):.200}")
            if number is not None and number not in item.conditions[name]:
                raise DataError(path, f"{where} region {number} in condition {quoted(name)}")
