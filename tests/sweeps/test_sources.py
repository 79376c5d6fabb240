"""Results of trials are those of the settings and of the source files with which they were trained."""

import json

import pytest

from structattn.loading.runs import open_run
from structattn.settings.sweep import SweepSettings
from structattn.support.errors import DataError, StructattnError
from structattn.sweeps.results import read_sweep_results
from structattn.training.run_training import train


@pytest.fixture
def text(tmp_path):
    """A file of text, and the settings of a sweep that prepares it."""
    path = tmp_path / "text"
    path.write_text("a b a\nb a\n" * 4)
    tree = {
        "base": {
            "task": "language_modeling",
            "prepare": {"kind": "text", "train": str(path), "valid": str(path)},
            "model": {"d_model": 4, "d_ff": 4, "num_heads": 1, "layers": "1"},
            "training": {"max_updates": 2},
        },
        "grid": {},
        "restarts": 1,
    }
    return path, tree


def test_a_sweep_whose_source_files_have_changed_is_refused(text, run_here, tmp_path):
    path, tree = text
    run_here(tree, tmp_path / "sweep")
    assert run_here(tree, tmp_path / "sweep")[1] == []
    path.write_text("a b a\nb b\n" * 4)
    with pytest.raises(DataError, match=r"data/\w+: made when the SHA-256 of .*/text was \w+, which is now \w+"):
        run_here(tree, tmp_path / "sweep")
    path.unlink()  # what is gone cannot be compared
    assert run_here(tree, tmp_path / "sweep")[1] == []


def test_a_stored_result_of_other_source_files_is_refused(text, run_here, tmp_path):
    path, tree = text
    stored = tmp_path / "results.trials.jsonl"
    rows = run_here(tree, tmp_path / "sweep", stored)[0]
    assert run_here(tree, tmp_path / "second", stored) == (rows, [])
    path.write_text("a b a\nb b\n" * 4)
    with pytest.raises(DataError, match=r"results\.trials\.jsonl:1: made when the SHA-256 of .*/text was"):
        run_here(tree, tmp_path / "third", stored)
    path.unlink()
    assert run_here(tree, tmp_path / "third", stored) == (rows, [])


def test_a_stored_result_of_another_prepared_folder_is_refused(text, run_here, tmp_path):
    _, tree = text
    run_here(tree, tmp_path / "first")
    (prepared,) = [entry for entry in (tmp_path / "first" / "data").iterdir() if entry.is_dir()]
    tree["base"]["data"] = str(tmp_path / "data")
    del tree["base"]["prepare"]
    prepared.rename(tmp_path / "data")
    stored = tmp_path / "results.trials.jsonl"
    run_here(tree, tmp_path / "second", stored)
    with (tmp_path / "data" / "header.json").open("a") as header:
        header.write("\n")
    with pytest.raises(DataError, match=r"\.jsonl:1: made when the SHA-256 of .*/data/header\.json was"):
        run_here(tree, tmp_path / "third", stored)


@pytest.fixture
def stored(tree, run_here, tmp_path):
    """The results of a sweep of one trial, whose settings are now those of ``tree``."""
    tree |= {"grid": {}, "restarts": 1}
    tree["base"]["prepare"]["language"] = "dyck"
    run_here(tree, tmp_path / "sweep", tmp_path / "results.trials.jsonl")
    return tmp_path / "results.trials.jsonl"


def test_trials_do_not_join_results_of_data_that_another_version_drew(tree, stored, run_here, write_trials, tmp_path):
    content = json.loads(stored.read_text())
    tree["base"]["training"]["max_updates"] = 2
    assert len(run_here(tree, tmp_path / "same", stored)[1]) == 1
    write_trials(stored, [content | {"data_digest": "0" * 64}])
    with pytest.raises(StructattnError, match="1 of 1 trials failed") as error:
        run_here(tree, tmp_path / "other", stored)
    assert "results.trials.jsonl:1: results of other data: the digest of their files was 00" in error.value.__notes__[0]
    assert not list((tmp_path / "other" / "runs").iterdir())  # nothing was trained
    tree["seed"] = 7
    assert len(run_here(tree, tmp_path / "seed", stored)[1]) == 1  # its data have another `prepare`


def test_a_moved_sweep_evaluates_finished_trials_on_the_data_in_its_folder(tree, stored, run_here, tmp_path):
    (tmp_path / "sweep").rename(tmp_path / "moved")
    rows, jobs = run_here(tree | {"evaluate": {"test": "all"}}, tmp_path / "moved", stored)
    assert [job.splits for job in jobs] == [("test",)]
    assert list(rows[0].splits) == ["test"]


def test_runs_of_a_moved_sweep_find_the_data_in_its_folder(tree, stored, tmp_path):
    (tmp_path / "sweep").rename(tmp_path / "moved")
    (run_dir,) = (tmp_path / "moved" / "runs").iterdir()
    run = open_run(run_dir)
    assert run.prepared.path.parent == tmp_path / "moved" / "data"
    assert train(None, run_dir, resume=True, limits={"max_updates": 5}).update == 5
    run.prepared.path.rename(tmp_path / "elsewhere")
    message = f"{tmp_path}/sweep/data/.*: the data of {run_dir}: no such folder; give its present path as data=FOLDER"
    with pytest.raises(DataError, match=message):
        open_run(run_dir)
    with pytest.raises(DataError, match=message):
        train(None, run_dir, resume=True, limits={"max_updates": 6})
    run.prepared.path.mkdir()  # say, a folder of several
    with pytest.raises(DataError, match=f"the data of {run_dir}: not a prepared folder; give its present path"):
        open_run(run_dir)


def test_lines_of_one_prepare_and_two_data_are_refused(tree, stored, write_trials, tmp_path):
    content = json.loads(stored.read_text())
    other = content | {"trial": "0123456789ab", "data_digest": "0" * 64}
    write_trials(stored, [content, other])
    with pytest.raises(DataError, match=r"jsonl:2: results of other data than line 1: the digest is 0000"):
        read_sweep_results(SweepSettings.model_validate(tree), tmp_path / "nowhere", stored)
    del other["data_digest"]  # of an earlier version
    write_trials(stored, [content, other])
    read_sweep_results(SweepSettings.model_validate(tree), tmp_path / "nowhere", stored)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"training": {"max_grad_norm": 4.0}}}, r"training\.max_grad_norm was 4\.0 and is now 5\.0"),
        ({"prepare": {"group_size": 7}}, r"prepare\.group_size was 7 and is now 10"),
    ],
)
def test_a_stored_result_of_another_default_is_refused(tree, stored, write_trials, tmp_path, change, message):
    content = json.loads(stored.read_text())
    for part, fields in change.items():
        merge(content[part], fields)
    write_trials(stored, [content])
    with pytest.raises(DataError, match=f"jsonl:1: .*{message}"):
        read_sweep_results(SweepSettings.model_validate(tree), tmp_path / "nowhere", stored)


def merge(tree, changes):
    """Replace fields of nested mappings."""
    for name, value in changes.items():
        if isinstance(value, dict):
            merge(tree[name], value)
        else:
            assert name in tree, json.dumps(tree)  # all settings are stored, those with defaults, too
            tree[name] = value
