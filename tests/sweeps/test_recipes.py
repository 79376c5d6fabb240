"""Every sweep recipe has valid trials, and claims about existing cells."""

import functools
import json
from pathlib import Path

import pytest
import yaml

from structattn.settings.run import load_settings
from structattn.settings.sweep import load_sweep
from structattn.sweeps.comparison import check_claims, compare_with_published, configuration_differences
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.trials import cell_settings, make_trials

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "src/structattn/recipes"
RESULTS = ROOT / "results"
BASES = RECIPES / "base"  # what sweeps share; they are checked there
SWEEPS = [path for path in sorted(RECIPES.rglob("*.yaml")) if "\ngrid:" in path.read_text()]
SINGLE = [path for path in sorted(RECIPES.rglob("*.yaml")) if path not in SWEEPS and path.parent != BASES]


loaded = functools.cache(load_sweep)


@functools.cache
def trials_of(path):
    return make_trials(loaded(path), Path("sweep"))


def assert_precision_is_stated(path, precisions):
    """A recipe runs on every processor, or its comment says what to change where there is no bfloat16."""
    assert precisions == {"float32"} or "float32" in path.read_text().split("\nbase:")[0].split("\ntask:")[0]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: str(path.relative_to(RECIPES)))
def test_the_settings_that_a_sweep_keeps_are_those_that_it_read(path, tmp_path):
    sweep = loaded(path)
    (tmp_path / "sweep.yaml").write_text(sweep.to_yaml())
    assert load_sweep(tmp_path / "sweep.yaml") == sweep


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: str(path.relative_to(RECIPES)))
def test_the_trials_of_a_sweep_are_valid(path):
    sweep, trials = loaded(path), trials_of(path)
    cells = [trial.cell for trial in trials if trial.restart == 0]
    assert len(trials) == sum(sweep.restarts_of(cell) for cell in cells)
    assert_precision_is_stated(path, {trial.settings.training.precision for trial in trials})
    assert len(compare_with_published(sweep, [])) == sum(len(table.values) for table in sweep.published)
    for claim in sweep.claims:
        assert check_claims([claim], cells, []), f"{claim.description!r} matches no cell"


TRIALS = [
    path.relative_to(RESULTS).as_posix().removesuffix(".trials.jsonl") for path in RESULTS.rglob("*.trials.jsonl")
]


@pytest.mark.parametrize("name", sorted(TRIALS))
def test_the_stored_results_of_trials_are_those_of_the_recipe(name, tmp_path):
    sweep, stored = loaded(RECIPES / f"{name}.yaml"), RESULTS / f"{name}.trials.jsonl"
    results = read_sweep_results(sweep, tmp_path, stored)
    kept = json.loads((RESULTS / f"{name}.json").read_text())
    assert {row.selected: row.best for row in results.rows} == {row["selected"]: row["best"] for row in kept["rows"]}
    assert (len(results.ended), results.trials) == (kept["trials_ended"], kept["trials"])
    trials = {trial.name: trial for trial in trials_of(RECIPES / f"{name}.yaml")}
    for line in map(json.loads, stored.read_text().splitlines()):
        trial = trials[line["trial"]]
        assert (line["cell"], line["seed"], line["sampled"]) == (trial.cell, trial.settings.seed, trial.sampled)


def test_there_are_recipes():
    assert {path.parent.name for path in SWEEPS} >= {"context_free", "deterministic_context_free"}


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: str(path.relative_to(RECIPES)))
def test_the_settings_of_a_single_run_are_valid(path):
    settings = load_settings(path)
    assert settings.task == yaml.safe_load(path.read_text())["task"]
    assert_precision_is_stated(path, {settings.training.precision})


def compared(name, model):
    """The published numbers beside the cells of a model."""
    found = compare_with_published(loaded(RECIPES / f"{name}.yaml"), [])
    return [each for each in found if each.cell.get("model", each.cell.get("ends")) == model]


@pytest.mark.parametrize("path", [path for path in SWEEPS if "small" in path.stem], ids=lambda path: path.stem)
def test_published_numbers_beside_small_models_are_marked(path):
    assert all(each.differences for each in compare_with_published(loaded(path), []))


@pytest.mark.parametrize("model", ["Tf+Sup", "Tf+Nd"])
def test_published_translation_scores_stand_beside_stacks_without_sigmoid(model):
    assert not compared("stack_translation/full", model)
    assert {each.differences for each in compared("stack_translation/full", f"{model}, no sigmoid")} == {()}
    sweep = loaded(RECIPES / "stack_translation/full.yaml")
    cell = {"size": "160", "model": f"{model}, no sigmoid"}
    stacks = [cell_settings(sweep, cell)["model"][side]["layers"][2] for side in ("encoder", "decoder")]
    assert {stack["pushed_activation"] for stack in stacks} == {"none" if model == "Tf+Sup" else "exp"}


def test_a_stack_with_sigmoid_beside_a_published_score_would_be_marked():
    sweep = loaded(RECIPES / "stack_translation/full.yaml")
    table = sweep.published[0]
    value = next(each for each in table.values if each.cell == {"size": "160", "model": "Tf+Sup, no sigmoid"})
    moved = value.model_copy(update={"cell": {"size": "160", "model": "Tf+Sup"}})
    found = configuration_differences(sweep, table, moved)
    assert "model.encoder.layers.pushed_activation is sigmoid, published none" in found


@pytest.mark.parametrize("name", ["table_2", "table_4"])
def test_published_numbers_of_hc_all_stand_beside_the_configuration_of_the_code(name):
    assert not compared(f"hard_coded_attention/{name}", "hc-all")
    sweep = loaded(RECIPES / f"hard_coded_attention/{name}.yaml")
    found = compared(f"hard_coded_attention/{name}", "hc-all, as in the code")
    assert found
    for each in found:
        layers = cell_settings(sweep, each.cell)["model"]["decoder"]["cross_attention"]
        assert {(layer["length_ratio"], layer["floor"], *layer["offsets"]) for layer in layers} == {(1, False, -1, 1)}
        assert not any(difference.startswith("model.") for difference in each.differences)


def test_the_weight_of_the_stack_language_is_marked():
    found = compared("discrete_transformer/stack_language", "hard, weight 0.006")
    assert len(found) == 2
    for each in found:
        assert "training.receptive_field_weight is 0.006, published 0.1" in each.differences
        assert "our weight was chosen with the published numbers in view" in each.differences


def test_the_small_stack_translation_has_the_weights_and_dropout_of_its_paper():
    small, full = (loaded(RECIPES / f"stack_translation/{name}.yaml") for name in ("small", "full"))
    model = cell_settings(small, {"model": "Tf+Nd"})["model"]
    theirs = cell_settings(full, {"size": "160", "model": "Tf+Nd"})["model"]
    for name in ("weight_init", "embedding_init", "init_scale", "dropout", "norm", "bias", "tied_embeddings"):
        assert model[name] == theirs[name], name
    for name in ("attention_dropout", "hidden_dropout", "embedding_dropout"):  # null: that of `dropout`
        assert model[name] in (None, model["dropout"]), name
