"""The stored results of sweeps: the JSON file, the lines of its trials, and the recipe."""

import json
import re
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from structattn.runs.folder import differences
from structattn.settings.sweep import SweepSettings, load_sweep
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.table import TableRow
from structattn.sweeps.trials import Cell, cell_settings, cells_of

HERE = Path(__file__).parent
RECIPES = HERE.parent / "src/structattn/recipes"
_ROW = TypeAdapter(TableRow)


@dataclass(frozen=True)
class Stored:
    """The results of one sweep; ``name`` is the path of its JSON file below this folder, without suffix."""

    name: str
    content: dict[str, Any]

    @cached_property
    def rows(self) -> list[TableRow]:
        """The cells: from the lines of the trials, or, where these are not kept, from the JSON file."""
        if self.trials:
            return list(read_sweep_results(self.recipe, HERE / "none", self._trials_file).rows)
        return [self._row(content) for content in self.content["rows"]]

    def _row(self, content: dict[str, Any]) -> TableRow:
        """Return a cell; in files of older versions its seeds stand beside the runs, and its numbers are missing."""
        runs = [run for run in self.content["runs"] if run["cell"] == content["cell"]]
        scores = tuple(run["score"] for run in runs)
        over_trials = {
            split: {name: {"numbers": _numbers(each), **each} for name, each in of_split.items()}
            for split, of_split in content["over_trials"].items()
        }
        validation = {"numbers": scores, **content["validation"]}
        row = _ROW.validate_python({**content, "over_trials": over_trials, "validation": validation})
        if row.seeds:
            return row
        of_all = tuple(run["seed"] for run in runs)
        known = {len(runs): of_all, 1: tuple(run["seed"] for run in runs if run["name"] == row.selected)}
        seeds = {"validation": of_all}
        for split, of_split in content["over_trials"].items():
            first = next(iter(of_split.values()), None)
            if first is not None and first["count"] in known and ("numbers" in first or first["count"] == 1):
                seeds[split] = known[first["count"]]
        return replace(row, seeds=seeds)

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        """The lines of the trials; none for the oldest results."""
        path = self._trials_file
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    @property
    def _trials_file(self) -> Path:
        return HERE / f"{self.name}.trials.jsonl"

    @cached_property
    def recipe(self) -> SweepSettings:
        """The recipe as it is now."""
        return load_sweep(RECIPES / f"{self.name}.yaml")

    def row(self, cell: Cell) -> TableRow | None:
        """The results of a cell; None if none of its trials has ended."""
        return next((row for row in self.rows if row.cell == cell), None)

    def trials_of(self, cell: Cell) -> list[dict[str, Any]]:
        """The lines of a cell's trials."""
        return [trial for trial in self.trials if trial["cell"] == cell]

    @cached_property
    def changes(self) -> list[str]:
        """How the recipe's settings of the stored cells differ from those that the results have."""
        return setting_changes(
            SweepSettings.model_validate(self.content["settings"]), self.recipe, [row.cell for row in self.rows]
        )


def setting_changes(stored: SweepSettings, recipe: SweepSettings, cells: list[Cell]) -> list[str]:
    """Describe each resolved setting of the cells that differs between two sweeps, once."""
    known = cells_of(recipe)
    changes = differences(
        {"seed": stored.seed, "random": stored.model_dump(mode="json")["random"]},
        {"seed": recipe.seed, "random": recipe.model_dump(mode="json")["random"]},
    )
    for cell in cells:
        if cell not in known:
            changes.append(f"{' '.join(cell.values())} is no cell of the recipe now")
        else:
            changes += differences(cell_settings(stored, cell), cell_settings(recipe, cell))
    return list(dict.fromkeys(map(_of_any_layer, changes)))


def _of_any_layer(change: str) -> str:
    """Leave out the index in the path of a setting, so that the same change of all layers is one."""
    path, was, values = change.partition(" was ")
    return re.sub(r"[.][0-9]+", "", path, count=1) + was + values


def _numbers(statistics: dict[str, Any]) -> list[float]:
    """Return the numbers behind statistics of at most three, in an order that is not that of the seeds."""
    least, greatest, count = statistics["min"], statistics["max"], statistics["count"]
    if count > 3:
        raise ValueError(f"statistics of {count} numbers without these; expected at most 3")
    middle = statistics["mean"] * count - least - greatest
    return {1: [least], 2: [least, greatest], 3: [least, middle, greatest]}[count]


@cache
def stored(name: str) -> Stored:
    """Read the results of a sweep."""
    return Stored(name, json.loads((HERE / f"{name}.json").read_text(encoding="utf-8")))
