"""Runs that were trained elsewhere: verified and scored again beside the trials of a sweep."""

import copy
import json
import os
import re
import shutil

import pytest
from tests.program import succeed

from structattn.loading.evaluate import evaluate
from structattn.settings.run import resolve_settings
from structattn.settings.sweep import SweepSettings, read_sweep
from structattn.support.errors import CheckpointError, DataError, SettingsError, StructattnError, UsageError
from structattn.support.json_files import read_json
from structattn.sweeps.added import add_run, read_added
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.table import split_scores
from structattn.sweeps.trials import make_trials
from structattn.sweeps.worker import SweepFolder
from structattn.tasks.recognition.prepare import RecognitionSizes, prepare_recognition
from structattn.training.run_training import train

SIZES = {"train": 30, "valid": 20, "test": 4, "max_length": 13, "max_length_long": 15, "max_length_test": 17}
RATE = "training.optimizer.learning_rate"
TREE = {
    "base": {
        "task": "recognition",
        "prepare": {"kind": "recognition", "protocol": "hard", **SIZES},
        "model": {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": "1", "positions": "none"},
        "training": {
            "batches": {"kind": "tokens", "max_tokens": 64},
            "recognition": {"language_modeling": 1.0},
            "max_epochs": 2,
        },
    },
    "grid": {
        "language": {"copy": {"prepare.language": "marked-copy"}, "parity": {"prepare.language": "parity"}},
        "model": {"Tf": {}, "Tf+Sup": {"model.layers": "superposition-2"}},
    },
    "random": {RATE: {"kind": "cycle", "values": [0.003, 0.001]}},
    "restarts": 2,
    "evaluate": {"test": "all"},
}
SWEEP = SweepSettings.model_validate(TREE)


def trained(folder, name="own", data_seed=1, **changes):
    """Train a model that the sweep does not have, on data that are prepared by themselves."""
    data = folder / f"data-{data_seed}"
    if not data.exists():
        sizes = RecognitionSizes(**SIZES)
        prepare_recognition(data, "marked-copy", "hard", seed=data_seed, sizes=sizes)
    base = {key: value for key, value in copy.deepcopy(TREE["base"]).items() if key != "prepare"}
    tree = {**base, "data": str(data), "seed": 1}
    tree["model"] |= {"layers": "1+stack_pointer"}
    tree["training"]["optimizer"] = {"learning_rate": 0.001}
    for path, value in changes.items():
        section, field = path.split("__")
        tree[section][field] = value
    train(resolve_settings(tree), folder / name)
    return folder / name


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("elsewhere"))


def test_a_run_is_scored_beside_the_trials(own, tmp_path):
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    added = add_run(SWEEP, tmp_path / "sweep", own)
    assert (added.name, added.cell, added.seed) == ("own", {"language": "copy", "model": "own"}, 1)
    assert read_added(tmp_path / "sweep") == [added]
    assert {path: path.read_bytes() for path in own.rglob("*") if path.is_file()} == before
    evaluate(own, "test")
    stored = json.loads((own / "scores" / "test.json").read_text())
    assert added.splits == split_scores({"test": stored})
    assert added.parameters == stored["parameters"]
    groups, members = stored["recognition"]["groups"]["all"], stored["recognition"]["members"]
    beyond = [groups["14-15"], groups["16+"]]
    expected = sum(each["successes"] for each in beyond) / sum(each["trials"] for each in beyond)
    assert added.splits["test"]["accuracy_within"] == groups["0-13"]["value"]
    assert added.splits["test"]["accuracy_beyond"] == pytest.approx(expected)
    sums = [members[band]["num_tokens"] * members[band]["cross_entropy_difference"] for band in ("14-15", "16+")]
    expected = sum(sums) / sum(members[band]["num_tokens"] for band in ("14-15", "16+"))
    assert added.splits["test"]["members_difference_beyond"] == pytest.approx(expected)
    (own / "scores" / "test.json").unlink()


def test_any_folder_of_a_run_gives_it_a_name(own, tmp_path):
    odd = shutil.copytree(own, tmp_path / os.fsdecode(b"own\xff"))
    added = add_run(SWEEP, tmp_path / "sweep", odd / "checkpoints" / "..")
    assert added.name == r"own\udcff"
    assert read_added(tmp_path / "sweep") == [added]


def test_without_strings_of_trained_lengths_there_is_no_score_within(own, tmp_path):
    add_run(SWEEP, tmp_path / "sweep", own)
    (path,) = (tmp_path / "sweep" / "added").iterdir()
    scores = read_json(path, "added run")["scores"]
    recognition = scores["test"]["recognition"]
    for group in (recognition["groups"]["all"], recognition["members"]):
        del group["0-13"]
    found = split_scores(scores)["test"]
    assert not {"accuracy_within", "members_within", "members_difference_within"} & found.keys()
    assert {"accuracy_beyond", "members_beyond", "members_difference_beyond"} <= found.keys()


def test_a_sweep_may_begin_where_a_run_was_added(own, tmp_path):
    folder = tmp_path / "sweep"
    add_run(SWEEP, folder, own)
    SweepFolder(folder).require_sweep_or_nothing()
    assert read_sweep(folder / "sweep.yaml") == SWEEP
    (folder / "sweep.yaml").unlink()  # as an earlier version left it
    SweepFolder(folder).require_sweep_or_nothing()
    with pytest.raises(StructattnError, match=r"own: expected a new or empty folder or a sweep's; found 'best\.json'"):
        add_run(SWEEP, own, own)
    with pytest.raises(StructattnError, match=r"best\.json: is a file; expected a new or empty folder or a sweep's"):
        add_run(SWEEP, own / "best.json", own)


@pytest.mark.parametrize(
    ("grid", "cell"),
    [
        ({"language": TREE["grid"]["language"]}, {"language": "copy"}),
        ({"model": {"Tf": {}, "slow": {"model.d_ff": 9, "training.max_epochs": 3}}}, {"model": "own"}),
        ({"model": {"Tf": {"model.d_ff": 9}}, "rate": {"one": {}}}, {"model": "own", "rate": "one"}),
        ({"data": {"copy": {"model.d_ff": 9, "prepare.seed": 1}}}, {"data": "copy"}),
    ],
)
def test_the_cell_names_no_model_of_the_sweep(own, tmp_path, grid, cell):
    """An axis that chooses the model, whatever else it changes, has the name of the run; others keep their values."""
    tree = copy.deepcopy(TREE) | {"grid": grid}
    tree["base"]["prepare"]["language"] = "marked-copy"
    assert add_run(SweepSettings.model_validate(tree), tmp_path, own).cell == cell


def test_the_data_are_those_of_the_trial(own, tmp_path):
    add_run(SWEEP, tmp_path, own)
    (data,) = (path for path in (tmp_path / "data").iterdir() if path.is_dir())
    assert {trial.cell["language"] for trial in make_trials(SWEEP, tmp_path) if trial.settings.data == data} == {"copy"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training__max_epochs": 3}, r"max_epochs was 2 and is now 3"),
        ({"training__optimizer": {"learning_rate": 0.002}}, r"learning_rate is 0.002, which the sweep does not sample"),
        ({"data_seed": 5}, r"seed of the data is 5, 1 in the sweep"),
        ({"model__d_ff": 80}, r"parameters; expected"),
    ],
)
def test_a_run_that_does_not_fit_is_refused(tmp_path, changes, message):
    with pytest.raises(SettingsError, match=message):
        add_run(SWEEP, tmp_path / "sweep", trained(tmp_path, **changes))
    assert read_added(tmp_path / "sweep") == []


def test_other_data_of_the_same_name_are_refused(tmp_path):
    tree = copy.deepcopy(TREE)
    tree["base"]["prepare"]["train"] = 20
    run = trained(tmp_path)
    with pytest.raises(CheckpointError, match="data"):
        add_run(SweepSettings.model_validate(tree), tmp_path / "sweep", run)


def test_a_run_that_goes_on_and_a_damaged_file_are_refused(own, tmp_path):
    unfinished = trained(tmp_path, "unfinished")
    events = (unfinished / "events.jsonl").read_text().splitlines(keepends=True)
    (unfinished / "events.jsonl").write_text("".join(events[:-1]))
    with pytest.raises(UsageError, match="has not ended"):
        add_run(SWEEP, tmp_path / "sweep", unfinished)
    with pytest.raises(UsageError, match="evaluates no split"):
        add_run(SWEEP.model_copy(update={"evaluate": {}}), tmp_path / "sweep", own)
    add_run(SWEEP, tmp_path / "sweep", own)
    file = tmp_path / "sweep" / "added" / "own.json"
    file.write_text(file.read_text().replace('"seed": 1', '"seed": 2', 1))
    with pytest.raises(DataError, match="changed since it was written"):
        read_added(tmp_path / "sweep")


def test_added_runs_are_in_results_and_reports(own, run_here, tmp_path):
    tree = copy.deepcopy(TREE) | {"restarts": 1}
    del tree["grid"]["language"]["parity"]
    run_here(tree, tmp_path / "sweep")
    (tmp_path / "sweep.yaml").write_text(json.dumps(tree))
    result = succeed("sweep", tmp_path / "sweep.yaml", "--output", tmp_path / "sweep", "--add", own)
    assert re.search(r"own +│ *copy +│ *own +│", result.output), result.output
    results = read_sweep_results(SweepSettings.model_validate(tree), tmp_path / "sweep")
    assert [each.cell for each in results.added] == [{"language": "copy", "model": "own"}]
    succeed("report", tmp_path / "sweep", "--output", tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Added runs" in page
    assert re.search(r"<th[^>]*>own</th><td[^>]*>copy, own</td>", page)
