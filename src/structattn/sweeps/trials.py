"""The trials of a sweep, each a pure function of the sweep's settings."""

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from structattn.settings.base import literal_of, members_of
from structattn.settings.distributions import Cycle, LogUniform, Uniform
from structattn.settings.overrides import error_message, set_path
from structattn.settings.prepare import Prepare, SampledData
from structattn.settings.run import RunSettings, resolve_settings
from structattn.settings.sweep import Halving, SweepSettings
from structattn.settings.training import TrainingSettings
from structattn.support.errors import SettingsError
from structattn.support.seeds import numpy_generator

Cell = dict[str, str]

_PREPARE: Final[TypeAdapter[Prepare]] = TypeAdapter(Prepare)


@dataclass(frozen=True)
class Trial:
    """One training of a sweep.

    Args:
        cell: axis -> name of its value.
        restart: the index of the trial within its cell, from 0.
        settings: the settings of the run; ``data`` is the folder that ``prepare`` will be written to, if given.
        prepare: the data to prepare; None if they exist.
        sampled: path.to.field -> the value that was sampled.
    """

    cell: Cell
    restart: int
    settings: RunSettings
    prepare: Prepare | None
    sampled: dict[str, float]

    @property
    def name(self) -> str:
        """The first twelve hexadecimal digits of a digest of the settings of the run and its data.

        Defaults are left out, so a setting that is added later does not rename existing trials.
        """
        tree = self.settings.model_dump(mode="json", exclude_defaults=True)
        if self.prepare is not None:
            tree["data"] = self.prepare.model_dump(mode="json", exclude_defaults=True)
        return _digest(tree)

    @property
    def title(self) -> str:
        """Cell and index, for messages."""
        return " ".join([*self.cell.values(), f"#{self.restart}"])


def make_trials(sweep: SweepSettings, folder: str | PathLike[str]) -> list[Trial]:
    """Return all trials of a sweep in ``folder``: the first trial of every cell, then the second of every cell, etc.

    Raises:
        SettingsError: the settings of a trial are invalid, or do not fit the rungs of `halving`; the message names its
            cell.
    """
    trials = [trial for cell in cells_of(sweep) for trial in trials_of(sweep, Path(folder), cell)]
    trials.sort(key=lambda trial: trial.restart)
    seen: dict[str, Trial] = {}
    for trial in trials:
        if trial.name in seen:
            raise SettingsError(f"the trials {seen[trial.name].title!r} and {trial.title!r} have the same settings")
        seen[trial.name] = trial
    return trials


def require_published(sweep: SweepSettings) -> None:
    """Check the settings behind published numbers, which a report of the sweep compares with those of its cells.

    Raises:
        SettingsError: they are invalid; the message names the cell.
    """
    seen = []
    for table in sweep.published:
        for value in table.values:
            changes = table.settings | value.settings
            if changes and (value.cell, changes) not in seen:
                seen.append((value.cell, changes))
                cell_settings(sweep, value.cell, changes)


def cells_of(sweep: SweepSettings) -> list[Cell]:
    """Return all cells of the grid."""
    return [dict(zip(sweep.grid, names, strict=True)) for names in itertools.product(*sweep.grid.values())]


def trials_of(sweep: SweepSettings, folder: Path, cell: Cell) -> list[Trial]:
    """Return the trials of a cell, with values that are drawn at random.

    Raises:
        SettingsError: the settings of a trial are invalid; the message names the cell.
    """
    count = sweep.restarts_of(cell)
    return [make_trial(sweep, folder, cell, restart, drawn_values(sweep, cell, restart)) for restart in range(count)]


def cell_settings(sweep: SweepSettings, cell: Cell, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the resolved settings of a cell, those of its data under ``prepare``, without seed and sampled values.

    ``changes``, path.to.field -> value, are applied last.

    Raises:
        SettingsError: the settings are invalid.
    """
    tree = _cell_tree(sweep, cell)
    _set_paths(tree, changes or {})
    title = " ".join(cell.values()) or "(the only cell)"
    source = f"published settings of {title}" if changes else title
    prepare = _prepare({"seed": sweep.seed, **tree}, source)
    tree = {"data": "prepared", **{name: value for name, value in tree.items() if name != "prepare"}}
    settings = resolve_settings(tree, source=source).model_dump(mode="json")
    return settings if prepare is None else {"prepare": prepare.model_dump(mode="json"), **settings}


def _cell_tree(sweep: SweepSettings, cell: Cell) -> dict[str, Any]:
    tree = copy.deepcopy(sweep.base)
    for axis, name in cell.items():
        _set_paths(tree, sweep.grid[axis][name])
    for where in sweep.where:
        if where.matches(cell):
            _set_paths(tree, where.set)
    return tree


def make_trial(sweep: SweepSettings, folder: Path, cell: Cell, restart: int, sampled: dict[str, float]) -> Trial:
    """Return a trial with given values of the fields of `random`.

    Raises:
        SettingsError: its settings are invalid; the message names the cell.
    """
    tree = _cell_tree(sweep, cell)
    _set_paths(tree, sampled)
    source = f"trial {' '.join(cell.values()) or '(the only cell)'}"
    seed = tree.get("seed", sweep.seed)
    if type(seed) is not int:
        raise SettingsError(f"{source}: seed: expected an integer, got {seed!r}")
    tree["seed"] = seed + restart
    if isinstance(tree.setdefault("training", {}), dict):
        tree["training"].setdefault("num_threads", 1)  # trials share the machine; one thread each is fastest
    drawn = f" with random {', '.join(f'{path}={value:.6g}' for path, value in sampled.items())}" if sampled else ""
    prepare = _prepare(tree, source + drawn)
    if prepare is not None:
        tree["data"] = str(folder / "data" / _digest(prepare.model_dump(mode="json", exclude_defaults=True)))
    settings = resolve_settings(tree, source=source + drawn)
    if sweep.halving is not None:
        _check_rungs(sweep.halving, settings.training, source)
    return Trial(cell, restart, settings, prepare, sampled)


def _check_rungs(halving: Halving, training: TrainingSettings, source: str) -> None:
    first, last = halving.after[0], halving.after[-1]
    name = f"max_{halving.unit}"
    limit = getattr(training, name)
    if limit is not None and last > limit:
        raise SettingsError(f"{source}: halving.after: {last} {halving.unit} are more than training.{name}={limit}")
    interval = training.validate_every
    if halving.unit == "updates" and isinstance(interval, int) and first < interval:
        raise SettingsError(
            f"{source}: halving.after: {first} updates are before the first validation; expected at least "
            f"training.validate_every={interval}"
        )


def _set_paths(tree: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for path, value in changes.items():
        set_path(tree, path, copy.deepcopy(value))


def _prepare(tree: dict[str, Any], source: str) -> Prepare | None:
    """Remove ``prepare`` from a trial's settings and validate it."""
    given = tree.pop("prepare", None)
    if given is None:
        return None
    if "data" in tree:
        raise SettingsError(f"{source}: has both `data` and `prepare`; expected one of them")
    made = resolve_prepare(given, f"{source}: prepare")
    return made.seeded(tree["seed"]) if isinstance(made, SampledData) else made


def resolve_prepare(given: object, source: str) -> Prepare:
    """Validate settings of data to prepare.

    Raises:
        SettingsError: they are invalid; the message begins with ``source``.
    """
    try:
        return _PREPARE.validate_python(given)
    except ValidationError as error:
        kind = given.get("kind", "formal_language") if isinstance(given, dict) else given
        known = next((each for each in members_of(Prepare) if literal_of(each, "kind") == kind), None)
        raise SettingsError(error_message(error, given, source, settings=known)) from None


def drawn_values(sweep: SweepSettings, cell: Cell, restart: int) -> dict[str, float]:
    """Draw the values of a trial; each depends only on the sweep's seed, the field, and the trial's cell and index."""
    return {path: _draw(sweep, cell, restart, path) for path in sweep.random}


def names_of(cell: Cell) -> list[str]:
    """Return the axes of a cell and their values, in one order for all sweeps: a part of random seeds."""
    return [part for axis in sorted(cell) for part in (axis, cell[axis])]


def _draw(sweep: SweepSettings, cell: Cell, restart: int, path: str) -> float:
    draw = sweep.random[path]
    if isinstance(draw, Cycle):
        return draw.values[restart % len(draw.values)]
    fraction = float(numpy_generator(sweep.seed, "draw", path, *names_of(cell), restart).random())
    if isinstance(draw, LogUniform):
        return math.exp(math.log(draw.low) + fraction * math.log(draw.high / draw.low))
    if isinstance(draw, Uniform):
        return draw.low + fraction * (draw.high - draw.low)
    return draw.low + math.floor(fraction * (draw.high - draw.low + 1))


def _digest(tree: object) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:12]
