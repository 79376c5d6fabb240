"""The settings of a sweep: a grid of trials, each trained several times."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, Tag, ValidationError, WithJsonSchema, model_validator

from structattn.settings.base import Settings, discriminated_by
from structattn.settings.published import (
    CONTRASTIVE,
    LENGTH,
    SCORES,
    CellPattern,
    Claim,
    Curves,
    Dependencies,
    Figure,
    Published,
)
from structattn.settings.run import described, read_mapping
from structattn.support.errors import SettingsError

Changes = dict[str, Any]


_Interval = TypeVar("_Interval", bound="LogUniform | Uniform | UniformInteger")


def _rising(draw: _Interval) -> _Interval:
    if draw.low > draw.high:
        raise ValueError(f"low {draw.low} is more than high {draw.high}")
    return draw


class LogUniform(Settings):
    """A number whose logarithm is uniform between those of ``low`` and ``high``."""

    kind: Literal["log_uniform"] = "log_uniform"
    low: float = Field(gt=0)
    high: float = Field(gt=0)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        return _rising(self)


class Uniform(Settings):
    """A number that is uniform between ``low`` and ``high``."""

    kind: Literal["uniform"]
    low: float
    high: float

    @model_validator(mode="after")
    def _rising(self) -> Self:
        return _rising(self)


class UniformInteger(Settings):
    """A whole number that is uniform between ``low`` and ``high``, both included."""

    kind: Literal["integer"]
    low: int
    high: int

    @model_validator(mode="after")
    def _rising(self) -> Self:
        return _rising(self)


Draw = Annotated[
    Annotated[LogUniform, Tag("log_uniform")]
    | Annotated[Uniform, Tag("uniform")]
    | Annotated[UniformInteger, Tag("integer")],
    discriminated_by("kind", default="log_uniform"),
]


def fits(cell: Mapping[str, str], pattern: CellPattern) -> bool:
    """Whether a cell has, on each axis of the pattern, the value or one of the values named."""
    wanted = {axis: (value,) if isinstance(value, str) else value for axis, value in pattern.items()}
    return all(cell.get(axis) in values for axis, values in wanted.items())


class Where(Settings):
    """Changes for the cells that match: on each axis named, one of the values named."""

    match: CellPattern = Field(description="axis -> value, or a list of values")
    set: Changes = Field(default={}, description="path.to.field -> value")
    restarts: int | None = Field(
        default=None, ge=0, description="trials of each; 0: the cell is left out; None: as many as elsewhere"
    )

    def fits(self, cell: dict[str, str]) -> bool:
        """Whether a cell matches."""
        return fits(cell, self.match)


class SweepSettings(Settings):
    """Trials: every combination of the grid's values, each ``restarts`` times with a seed and draws of its own."""

    base: Annotated[dict[str, Any], WithJsonSchema({"type": ["object", "string"]})] = Field(
        description="settings of a run, or the path of a file that holds them; `prepare:` in place of `data:` has the "
        "data made for each trial"
    )
    grid: dict[str, dict[str, Changes]] = Field(
        default={}, description="axis -> name of a value -> path.to.field -> value"
    )
    where: tuple[Where, ...] = Field(default=(), description="changes for some cells of the grid, in this order")
    random: dict[str, Draw] = Field(default={}, description="path.to.field -> how its value is drawn for each trial")
    restarts: int = Field(default=1, ge=1, description="trials of each cell")
    seed: int = Field(default=1, ge=0, description="decides the draws; trial r of a cell has the seed `seed + r`")
    evaluate: dict[Literal["train", "valid", "test"], Literal["selected", "all"]] = Field(
        default={}, description="split -> whether the selected trial of each cell is scored on it, or all"
    )

    published: tuple[Published, ...] = Field(default=(), description="numbers in print to hold the results against")
    claims: tuple[Claim, ...] = Field(default=(), description="what is expected of the results")
    figures: tuple[Figure, ...] = Field(default=(), description="pictures of the results")

    def restarts_of(self, cell: dict[str, str]) -> int:
        """How many trials a cell has."""
        told = [where.restarts for where in self.where if where.restarts is not None and where.fits(cell)]
        return told[-1] if told else self.restarts

    @model_validator(mode="after")
    def _base_and_grid_say_something(self) -> Self:
        if "seed" in self.base:
            raise ValueError(f"base.seed: the seeds of trials are `seed` + 0, 1, ...; found {self.base['seed']!r}")
        for name in ("training", "model"):
            if not isinstance(self.base.get(name, {}), dict):
                raise ValueError(f"base.{name}: {self.base[name]!r} is no mapping of settings")
        for axis, values in self.grid.items():
            if not values:
                raise ValueError(f"grid.{axis}: has no values; expected one at least")
        return self

    @model_validator(mode="after")
    def _scores_are_made(self) -> Self:
        wanted = [*self.published, *self.claims, *(each for each in self.figures if isinstance(each, Curves))]
        for score in sorted({each.score for each in wanted if each.score != "validation"}):
            split, name = score.split(".")
            if split != CONTRASTIVE and split not in self.evaluate:
                raise ValueError(f"{score} is asked for, and `evaluate` does not name {split!r}")
            if split != CONTRASTIVE and name not in SCORES:
                raise ValueError(f"{score} is asked for; splits are scored by {', '.join(SCORES)}")
        return self

    @model_validator(mode="after")
    def _means_are_of_all(self) -> Self:
        selected = {split for split, which in self.evaluate.items() if which == "selected"}
        for each in (*self.published, *self.claims, *(each for each in self.figures if isinstance(each, Curves))):
            if each.of != "selected" and each.score.split(".")[0] in selected:
                raise ValueError(f"{each.of} of {each.score} is asked for, and `evaluate` scores selected trials only")
        return self

    @model_validator(mode="after")
    def _cells_are_in_the_grid(self) -> Self:
        for index, where in enumerate(self.where):
            self._require_known(f"where.{index}", where.match)
        for index, table in enumerate(self.published):
            for number, value in enumerate(table.values):
                place = f"published.{index}.values.{number}"
                self._require_known(place, value.cell)
                if missing := [axis for axis in self.grid if axis not in value.cell]:
                    raise ValueError(f"{place}: the cell says nothing of {', '.join(missing)}")
        for index, claim in enumerate(self.claims):
            for pattern in (claim.cell, claim.below or {}, claim.above or {}):
                self._require_known(f"claims.{index}", pattern)
        for index, figure in enumerate(self.figures):
            if isinstance(figure, Dependencies):
                self._require_known(f"figures.{index}", figure.cell)
                continue
            for name, axis in (("along", figure.along), ("panels", figure.panels)):
                if axis not in (None, *self.grid) and (name, axis) != ("along", LENGTH):
                    raise ValueError(
                        f"figures.{index}.{name}: {axis!r} is no axis; the grid has {', '.join(self.grid)}"
                    )
        return self

    def _require_known(self, place: str, pattern: Mapping[str, str | tuple[str, ...]]) -> None:
        for axis, value in pattern.items():
            if axis not in self.grid:
                raise ValueError(f"{place}: {axis!r} is no axis; the grid has {', '.join(self.grid) or 'none'}")
            for name in (value,) if isinstance(value, str) else value:
                if name not in self.grid[axis]:
                    raise ValueError(f"{place}: {name!r} is no value of {axis!r}; it has {', '.join(self.grid[axis])}")


def load_sweep(path: Path) -> SweepSettings:
    """Read a sweep from a YAML file; ``base`` may be the path of a run's YAML file, relative to this one.

    Raises:
        SettingsError: a file cannot be read, is not YAML, or does not fit; the message gives the dotted path.
    """
    tree = read_mapping(path)
    if isinstance(tree.get("base"), str):
        tree["base"] = read_mapping(path.parent / tree["base"])
    try:
        return SweepSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(described(error, tree, str(path))) from None
