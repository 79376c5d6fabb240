"""Every sweep recipe has valid trials, and claims about existing cells."""

from pathlib import Path

import pytest
import yaml

from structattn.settings.run import load_settings
from structattn.settings.sweep import load_sweep
from structattn.sweeps.comparison import check_claims, compare_with_published
from structattn.sweeps.trials import make_trials

RECIPES = Path(__file__).parents[2] / "recipes"
BASES = RECIPES / "base"  # what sweeps share; they are checked there
SWEEPS = [path for path in sorted(RECIPES.rglob("*.yaml")) if "grid" in yaml.safe_load(path.read_text())]
SINGLE = [path for path in sorted(RECIPES.rglob("*.yaml")) if path not in SWEEPS and path.parent != BASES]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: str(path.relative_to(RECIPES)))
def test_the_trials_of_a_sweep_are_valid(path, tmp_path):
    sweep = load_sweep(path)
    trials = make_trials(sweep, tmp_path)
    cells = [trial.cell for trial in trials if trial.restart == 0]
    assert len(trials) == sum(sweep.restarts_of(cell) for cell in cells)
    assert len(compare_with_published(sweep.published, [])) == sum(len(table.values) for table in sweep.published)
    for claim in sweep.claims:
        assert check_claims([claim], cells, []), f"{claim.description!r} matches no cell"


def test_there_are_recipes():
    assert {path.parent.name for path in SWEEPS} >= {"context_free", "deterministic_context_free"}


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: str(path.relative_to(RECIPES)))
def test_the_settings_of_a_single_run_are_valid(path):
    assert load_settings(path).task == yaml.safe_load(path.read_text())["task"]
