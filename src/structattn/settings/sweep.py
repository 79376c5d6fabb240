"""Settings of a sweep: its recipe, samplers, restarts and halving."""

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import Field, ValidationError, WithJsonSchema, model_validator

from structattn.settings.base import OneOf, Positive, Seed, Settings, of_kind
from structattn.settings.distributions import Cycle, Distribution
from structattn.settings.overrides import error_message
from structattn.settings.prepare import Split
from structattn.settings.published import (
    ANALYSES,
    EPOCH,
    LENGTH,
    SCORES,
    CellFigure,
    CellPattern,
    Claim,
    Curves,
    DifferencesByBin,
    Figure,
    PublishedTable,
)
from structattn.settings.recipes import Plugins, load_plugins_of, settings_file
from structattn.settings.training import Budget, Unit
from structattn.settings.yaml import read_mapping
from structattn.support.errors import SettingsError
from structattn.support.reading import MAX_INTEGER


class Halving(Settings):
    """Successive halving (Jamieson & Talwalkar 2016): at each rung, the best trials of a cell by validation go on."""

    after: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, description="rungs, ascending: the epochs or updates after which trials are compared"
    )
    unit: Unit = Field(default="epochs", description="unit of the rungs")
    keep: float = Field(default=0.5, gt=0, le=1, description="share of trials that goes on at each rung, rounded up")
    at_least: Positive = Field(default=1, description="number of trials that go on at each rung, if there are so many")

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The rungs."""
        return tuple(Budget(count, self.unit) for count in self.after)

    def survivors(self, count: int) -> int:
        """Return how many of ``count`` trials go on at a rung."""
        share = Fraction(str(self.keep))  # the decimal number that was written: 0.07 of 100 are 7
        return min(count, max(self.at_least, math.ceil(share * count)))

    @model_validator(mode="after")
    def _check_rungs(self) -> Self:
        for before, rung in itertools.pairwise(self.after):
            if rung <= before:
                raise ValueError(f"after: {rung} follows {before}; expected ascending numbers of {self.unit}")
        return self


class RandomSampler(Settings):
    """Each value is drawn alone: it depends on the seed of the sweep, the field, and the trial's cell and index."""

    kind: Literal["random"] = "random"


class TpeSampler(Settings):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), by Optuna.

    The values of a trial follow from the validation scores of earlier trials of its cell.
    """

    kind: Literal["tpe"]
    startup: int = Field(default=5, ge=1, le=MAX_INTEGER, description="trials of each cell that are drawn at random")
    parallel: int = Field(
        default=2,
        ge=1,
        le=MAX_INTEGER,
        description="trials of each cell that are proposed together, when all earlier ones have ended",
    )


Sampler = Annotated[RandomSampler | TpeSampler, OneOf("kind", "random", of_kind)]


MAX_TRIALS = 100_000
"""The maximum number of trials of a sweep."""

STOPPED_EARLY = "`halving` stops some of them early"
"""Why a statistic of all trials is refused."""

Changes = dict[str, Any]


def matches(cell: Mapping[str, str], pattern: CellPattern) -> bool:
    """Return whether a cell matches a pattern: on each axis of the pattern, the value or one of the values."""
    wanted = {axis: (value,) if isinstance(value, str) else value for axis, value in pattern.items()}
    return all(cell.get(axis) in values for axis, values in wanted.items())


class CellOverride(Settings):
    """Changes of the settings of all cells that match a pattern."""

    match: CellPattern = Field(description="axis -> value or list of values")
    set: Changes = Field(default={}, description="path.to.field -> value")
    restarts: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TRIALS,
        description="trials of each matching cell; 0: none; null: `restarts` of the sweep",
    )

    def matches(self, cell: dict[str, str]) -> bool:
        """Return whether a cell matches."""
        return matches(cell, self.match)


class SweepSettings(Settings):
    """Settings of a sweep: ``restarts`` trials of each cell of a grid, with different seeds and sampled values."""

    base: Annotated[dict[str, Any], WithJsonSchema({"type": ["object", "string"]})] = Field(
        description="settings of a run, a recipe, or the path of a file with them; `prepare:` instead of `data:` "
        "describes data that the sweep prepares"
    )
    grid: dict[str, dict[str, Changes]] = Field(
        default={},
        description="axis -> name of a value -> path.to.field -> value; cells are all combinations of values",
    )
    where: tuple[CellOverride, ...] = Field(default=(), description="changes of some cells, applied in this order")
    random: dict[str, Distribution] = Field(
        default={}, description="path.to.field -> distribution from which each trial samples a value"
    )
    sampler: Sampler = Field(
        default=RandomSampler(),
        description="how the values of `random` are chosen, a name or a mapping with its fields",
    )
    restarts: int = Field(default=1, ge=1, le=MAX_TRIALS, description="number of trials of each cell")
    halving: Halving | None = Field(
        default=None, description="successive halving of the trials of each cell; null: all are trained to their end"
    )
    seed: Seed = Field(
        default=1,
        description="random seed of sampled values; trial r of a cell has the seed `seed` + r, and a value of an axis "
        "may set another `seed`",
    )
    evaluate: dict[Split, Literal["selected", "all"]] = Field(
        default={},
        description="split -> trials that are evaluated on it: the selected trial of each cell, or all that are "
        "trained to their end",
    )

    published: tuple[PublishedTable, ...] = Field(default=(), description="published numbers, for comparison")
    claims: tuple[Claim, ...] = Field(default=(), description="expected relations between scores")
    figures: tuple[Figure, ...] = Field(default=(), description="figures of the results")
    plugins: Plugins = ()

    @property
    def is_adaptive(self) -> bool:
        """Whether the scores of some trials decide which others are trained."""
        return self.halving is not None or isinstance(self.sampler, TpeSampler)

    @property
    def splits_of_selected(self) -> set[str]:
        """The splits on which not all trials are evaluated."""
        return {split for split in get_args(Split) if self.evaluate.get(split) != "all"}

    def restarts_of(self, cell: dict[str, str]) -> int:
        """Return the number of trials of a cell."""
        given = [where.restarts for where in self.where if where.restarts is not None and where.matches(cell)]
        return given[-1] if given else self.restarts

    @model_validator(mode="after")
    def _check_base_and_grid(self) -> Self:
        for place, given in (("base", self.base), ("random", self.random)):
            if "seed" in given:
                expected = "expected none, since trials have the seeds `seed` + 0, 1, ..."
                raise ValueError(f"{place}.seed: {expected}; found {given['seed']!r}")
        for name in ("training", "model"):
            if not isinstance(self.base.get(name, {}), dict):
                raise ValueError(f"base.{name}: expected a mapping of settings; found {self.base[name]!r}")
        for axis, values in self.grid.items():
            if not values:
                raise ValueError(f"grid.{axis} is empty; expected at least one value")
            if "" in (axis, *values):
                raise ValueError(f"grid.{axis} has an empty name; expected one for the axis and for each value")
        return self

    @model_validator(mode="after")
    def _check_random(self) -> Self:
        """A value that a trial draws would replace that of the grid; cells would differ by their draws alone."""
        of_grid = {
            f"grid.{axis}.{name}": changes for axis, values in self.grid.items() for name, changes in values.items()
        }
        of_where = {f"where.{index}.set": where.set for index, where in enumerate(self.where)}
        for place, changes in (of_grid | of_where).items():
            if twice := [path for path in self.random if _gives(changes, path)]:
                raise ValueError(f"random.{twice[0]}: {place} sets this field, too; expected one of them")
        return self

    @model_validator(mode="after")
    def _check_sampler(self) -> Self:
        if not isinstance(self.sampler, TpeSampler):
            return self
        if not self.random:
            raise ValueError("sampler: 'tpe' proposes the values of `random`, which has none")
        for path, given in self.random.items():
            if isinstance(given, Cycle):
                raise ValueError(f"sampler: 'tpe' proposes values of an interval; random.{path} is a cycle")
        if self.halving is not None:
            raise ValueError("sampler: 'tpe' needs trials that were trained to their end; remove `halving`")
        return self

    @model_validator(mode="after")
    def _check_number_of_trials(self) -> Self:
        cells, restarts = (
            math.prod(map(len, self.grid.values())),
            [self.restarts, *(each.restarts or 0 for each in self.where)],
        )
        if cells * max(restarts) > MAX_TRIALS:  # before the trials are listed
            raise ValueError(f"up to {cells * max(restarts):,} trials; expected at most {MAX_TRIALS:,}")
        return self

    @model_validator(mode="after")
    def _check_scores(self) -> Self:
        for name in ("published", "claims", "figures"):
            for index, each in enumerate(getattr(self, name)):
                if isinstance(each, PublishedTable | Claim | Curves):
                    self._check_score(f"{name}.{index}", each)
        return self

    def _check_score(self, place: str, given: PublishedTable | Claim | Curves) -> None:
        if given.score != "validation" and given.split not in ANALYSES:
            if given.split not in self.evaluate:
                raise ValueError(f"{place}: {given.score} is needed, but `evaluate` does not name {given.split!r}")
            if given.name not in SCORES:
                known = ", ".join(SCORES)
                raise ValueError(f"{place}: unknown score {given.score}; the scores of a split are {known}")
        reason = None
        if self.halving is not None:
            reason = STOPPED_EARLY
        elif given.split in self.evaluate and given.split in self.splits_of_selected:
            reason = "`evaluate` scores selected trials only"
        if given.statistic != "selected" and reason:
            needed = f"{given.statistic} of {given.score} needs all trials, but {reason}"
            raise ValueError(f"{place}: {needed}; expected `statistic: selected`")

    @model_validator(mode="after")
    def _check_cells(self) -> Self:
        for index, where in enumerate(self.where):
            self._check_pattern(f"where.{index}", where.match)
        for index, table in enumerate(self.published):
            for number, value in enumerate(table.values):
                place = f"published.{index}.values.{number}"
                self._check_pattern(place, value.cell)
                if missing := [axis for axis in self.grid if axis not in value.cell]:
                    raise ValueError(f"{place}.cell: no value for {', '.join(missing)}")
        for index, claim in enumerate(self.claims):
            for pattern in (claim.cell, claim.below or {}, claim.above or {}):
                self._check_pattern(f"claims.{index}", pattern)
        for index, figure in enumerate(self.figures):
            if isinstance(figure, CellFigure):
                self._check_cell_figure(f"figures.{index}", figure)
                continue
            for name, axis in (("x_axis", figure.x_axis), ("panels", figure.panels)):
                if axis not in (None, *self.grid) and (name, axis) not in (("x_axis", LENGTH), ("x_axis", EPOCH)):
                    raise ValueError(
                        f"figures.{index}.{name}: {axis!r} is not an axis; the grid has {', '.join(self.grid)}"
                    )
        return self

    def _check_cell_figure(self, place: str, figure: CellFigure) -> None:
        self._check_pattern(place, figure.cell)
        if isinstance(figure, DifferencesByBin):
            self._check_pattern(f"{place}.base", figure.base)
            if missing := [axis for axis in self.grid if axis not in figure.base]:
                raise ValueError(f"{place}.base: no value for {', '.join(missing)}")

    def _check_pattern(self, place: str, pattern: Mapping[str, str | tuple[str, ...]]) -> None:
        for axis, value in pattern.items():
            if axis not in self.grid:
                raise ValueError(f"{place}: {axis!r} is not an axis; the grid has {', '.join(self.grid) or 'none'}")
            for name in (value,) if isinstance(value, str) else value:
                if name not in self.grid[axis]:
                    raise ValueError(
                        f"{place}: {name!r} is not a value of {axis!r}; expected one of {', '.join(self.grid[axis])}"
                    )

    def to_yaml(self) -> str:
        """Return the settings that were given, with those of a base in another file, as YAML that can be read back."""
        return yaml.safe_dump(self.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True)


def _gives(changes: Mapping[str, Any], path: str) -> bool:
    """Return whether changes, path.to.field -> value, give a field, itself or in a mapping that holds it."""
    if path in changes:
        return True
    within = {name: value for name, value in changes.items() if path.startswith(f"{name}.") and isinstance(value, dict)}
    return any(_gives(value, path.removeprefix(f"{name}.")) for name, value in within.items())


def load_sweep(path: str | PathLike[str]) -> SweepSettings:
    """Read the settings of a sweep from a YAML file that the user has named, and load its plugins.

    ``base`` may be a recipe, or the path of a YAML file with the settings of a run, relative to this one.

    Args:
        path: the file, or the name of a recipe, as ``context_free/small``.

    Raises:
        SettingsError: a file cannot be read, is not YAML, or has an unknown key or an invalid value; the message has
            the dotted path.
    """
    file = settings_file(path)
    tree = read_mapping(file)
    load_plugins_of(tree, file)
    base = file
    if isinstance(tree.get("base"), str):
        base = settings_file(tree["base"], file.parent)
        tree["base"] = read_mapping(base)
    if isinstance(tree.get("base"), dict):
        load_plugins_of(tree["base"], base)
    return _validated(tree, str(path))


def read_sweep(path: Path) -> SweepSettings:
    """Read the settings in the folder of a sweep; its plugins must be loaded.

    Raises:
        SettingsError: as ``load_sweep``.
    """
    return _validated(read_mapping(path), str(path))


def _validated(tree: dict[str, Any], source: str) -> SweepSettings:
    if "task" in tree and "base" not in tree:
        raise SettingsError(f"{source}: settings of a run, as they have no `base`; expected those of a sweep")
    try:
        return SweepSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(error_message(error, tree, source, settings=SweepSettings)) from None
