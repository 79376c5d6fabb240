"""Trials from the settings of a sweep."""

import itertools
import math

import pytest
import yaml

from structattn.settings.sweep import SweepSettings, load_sweep
from structattn.support.errors import SettingsError
from structattn.sweeps.data_preparation import prepare_data
from structattn.sweeps.trials import make_trials
from structattn.text.folders.prepared import open_prepared

RATE = "training.optimizer.learning_rate"


def trials(tree, folder):
    return make_trials(SweepSettings.model_validate(tree), folder)


def test_every_combination_occurs_once_for_each_restart(sweep, tmp_path):
    made = make_trials(sweep, tmp_path)
    names = [(trial.cell["language"], trial.cell["model"], trial.restart) for trial in made]
    assert sorted(names) == sorted(itertools.product(["w#w^R", "Dyck"], ["Tf", "Tf+Sup"], [0, 1]))
    assert len({trial.name for trial in made}) == 8
    for trial in made:
        kind = trial.settings.model.layers[0].attention
        assert kind == {"Tf": "softmax", "Tf+Sup": "superposition"}[trial.cell["model"]]
        assert trial.settings.seed == 1 + trial.restart == trial.prepare.seed
        assert trial.prepare.language == {"w#w^R": "marked-reversal", "Dyck": "dyck"}[trial.cell["language"]]
        assert trial.settings.training.optimizer.learning_rate == trial.sampled[RATE]
        assert trial.settings.training.num_threads == 1


def test_values_of_an_axis_may_set_the_first_seed(tree, tmp_path):
    tree["grid"]["language"]["Dyck"]["seed"] = 7
    seeds = {(trial.cell["language"], trial.restart): trial.settings.seed for trial in trials(tree, tmp_path)}
    assert seeds == {("w#w^R", 0): 1, ("w#w^R", 1): 2, ("Dyck", 0): 7, ("Dyck", 1): 8}


@pytest.mark.parametrize("seed", ["7", True])
def test_the_seed_of_an_axis_is_an_integer(tree, tmp_path, seed):
    tree["grid"]["language"]["Dyck"]["seed"] = seed
    with pytest.raises(SettingsError, match=f"trial Dyck Tf: seed: expected an integer, got {seed!r}"):
        trials(tree, tmp_path)


def test_models_of_one_language_share_their_data(sweep, tmp_path):
    folders = {}
    for trial in make_trials(sweep, tmp_path):
        folders.setdefault((trial.cell["language"], trial.restart), set()).add(trial.settings.data)
    assert all(len(found) == 1 for found in folders.values())
    assert len(set.union(*folders.values())) == 4


def test_cells_may_have_different_numbers_of_restarts(tree, tmp_path):
    before = {trial.title: trial.name for trial in trials(tree, tmp_path)}
    tree["restarts"] = 1
    tree["where"] = [
        {"match": {"model": "Tf+Sup"}, "restarts": 3},
        {"match": {"language": "Dyck", "model": "Tf+Sup"}, "restarts": 2},
    ]
    after = {trial.title: trial.name for trial in trials(tree, tmp_path)}
    assert sorted(after) == sorted(
        ["w#w^R Tf #0", "Dyck Tf #0", "Dyck Tf+Sup #0", "Dyck Tf+Sup #1", *(f"w#w^R Tf+Sup #{r}" for r in range(3))]
    )
    assert all(before[title] == name for title, name in after.items() if title in before)


def test_names_do_not_depend_on_the_folder(sweep, tmp_path):
    assert [t.name for t in make_trials(sweep, tmp_path)] == [t.name for t in make_trials(sweep, tmp_path / "else")]


def test_defaults_may_be_written_out(tree, tmp_path):
    before = [trial.name for trial in trials(tree, tmp_path)]
    tree["base"]["training"]["max_grad_norm"] = 5.0
    tree["base"]["prepare"]["kind"] = "formal_language"
    assert [trial.name for trial in trials(tree, tmp_path)] == before


def test_a_trial_stays_the_same_when_the_grid_grows(tree, tmp_path):
    before = {trial.title: trial.name for trial in trials(tree, tmp_path)}
    tree["grid"] = {"model": tree["grid"]["model"], "language": tree["grid"]["language"]}
    tree["grid"]["model"] = {"wide": {"model.d_model": 8}, **tree["grid"]["model"]}
    tree["restarts"] = 3
    after = {f"{t.cell['language']} {t.cell['model']} #{t.restart}": t.name for t in trials(tree, tmp_path)}
    assert before.items() <= after.items()


def test_samples_are_log_uniform(tree, tmp_path):
    tree["restarts"] = 400
    sampled = sorted(math.log(trial.sampled[RATE]) for trial in trials(tree, tmp_path))
    low, high = math.log(0.0005), math.log(0.01)
    gaps = [abs((x - low) / (high - low) - (i + 0.5) / len(sampled)) for i, x in enumerate(sampled)]
    assert max(gaps) < 1.63 / math.sqrt(len(sampled))  # Kolmogorov and Smirnov at 1 %


@pytest.mark.parametrize(("kind", "values"), [("uniform", None), ("integer", {3, 4, 5})])
def test_other_distributions_stay_in_their_range(tree, tmp_path, kind, values):
    tree["random"] = {"training.optimizer.weight_decay": {"kind": kind, "low": 3, "high": 5}}
    tree["restarts"] = 40
    sampled = {trial.sampled["training.optimizer.weight_decay"] for trial in trials(tree, tmp_path)}
    assert all(3 <= value <= 5 for value in sampled)
    assert values is None or sampled == values


def test_the_values_of_a_cycle_are_taken_in_turn(tree, tmp_path):
    tree["random"] = {RATE: {"kind": "cycle", "values": [0.001, 0.003, 0.01]}}
    tree["restarts"] = 5
    for trial in trials(tree, tmp_path):
        assert trial.sampled[RATE] == trial.settings.training.optimizer.learning_rate
        assert trial.sampled[RATE] == (0.001, 0.003, 0.01, 0.001, 0.003)[trial.restart]


def test_where_changes_the_matching_cells(tree, tmp_path):
    tree["where"] = [{"match": {"language": "Dyck", "model": ["Tf+Sup"]}, "set": {"model.layers": "superposition-3"}}]
    for trial in trials(tree, tmp_path):
        if trial.cell["model"] == "Tf+Sup":
            assert trial.settings.model.layers[0].stack_embedding_size == (3 if trial.cell["language"] == "Dyck" else 2)


def test_cells_with_zero_restarts_are_skipped(tree, tmp_path):
    tree["where"] = [{"match": {"language": "Dyck", "model": "Tf"}, "restarts": 0}]
    assert {tuple(trial.cell.values()) for trial in trials(tree, tmp_path)} == {
        ("w#w^R", "Tf"), ("w#w^R", "Tf+Sup"), ("Dyck", "Tf+Sup")}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"where": [{"match": {"langage": "Dyck"}, "set": {}}]},
            "'langage' is not an axis; the grid has language, model",
        ),
        (
            {"where": [{"match": {"model": "RNN"}, "set": {}}]},
            r"'RNN' is not a value of 'model'; expected one of Tf, Tf\+Sup",
        ),
        ({"restarts": 0}, "restarts: expected at least 1, got 0"),
        ({"restarts": 999_999_999}, "restarts: expected at most 100000"),
        (
            {"grid": {name: {str(value): {} for value in range(10)} for name in "abcdef"}},
            "up to 2,000,000 trials; expected at most 100,000",
        ),
        ({"gird": {}}, "gird: no such field; did you mean grid"),
        ({"random": {RATE: {"low": 0, "high": 1}}}, "low: .*more than 0, got 0; `kind: uniform` takes any"),
        ({"random": {RATE: {"kind": "cycle", "values": [0.1]}}, "sampler": "tpe"}, "is a cycle"),
        ({"random": {RATE: {"low": 2, "high": 1}}}, "low 2.0 is greater than high 1.0"),
        ({"random": {RATE: {"kind": "integer", "low": 2, "high": 1}}}, "low 2 is greater than high 1"),
        ({"random": {RATE: {"kind": "cycle", "values": [0.1, True]}}}, r"values: expected a number, got \[0.1, True\]"),
        ({"grid": {"model": {}}}, r"grid\.model is empty"),
        ({"base": {"training": None}}, r"base\.training: expected a mapping of settings; found None"),
        ({"base": {"seed": 3}}, r"base\.seed: expected none, since trials have the seeds"),
        (
            {"grid": {"rate": {"small": {RATE: 0.001}}}},
            rf"random\.{RATE}: grid\.rate\.small sets this field, too; expected one of them",
        ),
        (
            {"grid": {"rate": {"low": {"training.optimizer": {"learning_rate": 0.1}}}}},
            r"grid\.rate\.low sets this field",
        ),
        ({"where": [{"match": {}, "set": {RATE: 0.1}}]}, r"where\.0\.set sets this field, too"),
        ({"grid": {"model": {True: {}, "no": {}}}}, r"grid\.model: expected text, got True; write it in quotes"),
        ({"grid": {"model": {"": {}}}}, r"grid\.model has an empty name"),
        ({"random": {"seed": {"kind": "cycle", "values": [1, 2]}}}, r"random\.seed: expected none, since trials have"),
        ({"evaluate": {"tset": "all"}}, "evaluate.tset"),
        ({"claims": [{"description": "", "score": "test.BLEU", "at_least": 1}]}, "`evaluate` does not name 'test'"),
        (
            {"claims": [{"description": "", "score": "test.bleu", "at_least": 1}], "evaluate": {"test": "all"}},
            "unknown score test.bleu; the scores of a split are cross_entropy",
        ),
        (
            {
                "claims": [{"description": "", "score": "test.BLEU", "statistic": "mean", "at_least": 1}],
                "evaluate": {"test": "selected"},
            },
            r"claims\.0: mean of test\.BLEU needs all trials, but `evaluate` scores selected trials only; expected",
        ),
        ({"random": {RATE: {"low": 0.1, "high": float("inf")}}}, "finite"),
    ],
)
def test_an_invalid_sweep_is_rejected_with_its_path(tree, tmp_path, change, message):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree | change))
    with pytest.raises(SettingsError, match=message):
        load_sweep(tmp_path / "sweep.yaml")


def test_an_invalid_trial_is_rejected_with_its_cell(tree, tmp_path):
    tree["grid"]["model"]["Tf"] = {"model.num_heads": 3}
    drawn = r"with random training\.optimizer\.learning_rate=0\.\d+"
    with pytest.raises(
        SettingsError, match=rf"trial w#w\^R Tf {drawn}: model.*d_model 4 is not divisible by num_heads 3"
    ):
        trials(tree, tmp_path)


def test_a_group_of_a_trial_that_is_no_mapping_is_rejected(tree, tmp_path):
    del tree["random"]
    tree["grid"]["model"]["Tf"] = {"training": None}
    with pytest.raises(SettingsError, match=r"trial w#w\^R Tf: training: expected settings, as .*, got None"):
        trials(tree, tmp_path)


def test_cells_that_differ_only_in_a_kind_are_different(tree, tmp_path):
    for field in ("schedule", "batches"):
        kinds = {"schedule": ("constant", "warmup", "plateau"), "batches": ("sequences", "tokens", "stream")}[field]
        tree["grid"] = {
            "kind": {kind: {f"training.{field}": {"kind": kind}, "prepare.language": "dyck"} for kind in kinds}
        }
        names = {trial.name for trial in trials(tree, tmp_path) if trial.restart == 0}
        assert len(names) == 3


def test_two_equal_cells_are_rejected(tree, tmp_path):
    tree["grid"] = {"language": {"a": {"prepare.language": "dyck"}, "b": {"prepare.language": "dyck"}}}
    tree["random"] = {}
    with pytest.raises(SettingsError, match="'a #0' and 'b #0' have the same settings"):
        trials(tree, tmp_path)


def test_existing_data_can_be_used(tree, tmp_path):
    del tree["base"]["prepare"]
    tree["base"]["data"] = "somewhere"
    tree["grid"].pop("language")
    assert {str(trial.settings.data) for trial in trials(tree, tmp_path)} == {"somewhere"}
    tree["base"]["prepare"] = {"language": "dyck"}
    with pytest.raises(SettingsError, match="has both `data` and `prepare`"):
        trials(tree, tmp_path)


def test_the_base_may_be_a_file(tree, tmp_path):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tree["base"]))
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree | {"base": "run.yaml"}))
    assert load_sweep(tmp_path / "sweep.yaml") == SweepSettings.model_validate(tree)


def test_transduction_pairs_can_be_prepared(tree, tmp_path):
    tree["base"]["task"] = "masked_transduction"
    tree["base"]["prepare"] = {"kind": "transduction", "test_per_length": 2}
    tree["grid"]["language"] = {"RS": {"prepare.transduction": "reverse-string"}}
    assert {trial.prepare.transduction for trial in trials(tree, tmp_path)} == {"reverse-string"}
    tree["base"]["prepare"]["train"] = 3
    with pytest.raises(
        SettingsError, match=r"prepare: transduction\.train: no such field.*expected one of .*train_lengths"
    ):
        trials(tree, tmp_path)


def test_labelled_strings_can_be_prepared(tree, tmp_path):
    sizes = {"train": 20, "valid": 20, "test": 4, "max_length": 15, "max_length_long": 15, "max_length_test": 17}
    tree["base"]["task"] = "recognition"
    tree["base"]["prepare"] = {"kind": "recognition", "protocol": "hard", **sizes}
    tree["grid"]["language"] = {"copy": {"prepare.language": "marked-copy"}, "own": {"prepare.language": "own.cfg"}}
    made = {trial.prepare.language: trial.prepare for trial in trials(tree, tmp_path)}
    assert {name: each.files for name, each in made.items()} == {"marked-copy": (), "own.cfg": ("own.cfg",)}
    prepare_data(tmp_path / "data", made["marked-copy"].seeded(1))
    prepared = open_prepared(tmp_path / "data")
    assert (prepared.kind, prepared.header.extra["protocol"]) == ("recognition", "hard")
    assert int(prepared.split("test").lengths.max()) == 17
