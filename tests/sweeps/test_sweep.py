"""Whole sweeps: killed workers resume, and the results equal those of an uninterrupted sweep."""

import contextlib
import copy
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.program import invoke, succeed

from structattn.loading.evaluate import evaluate
from structattn.runs.folder import RunFolder
from structattn.settings.sweep import SweepSettings, load_sweep
from structattn.support.environment import source_commit
from structattn.support.errors import DataError, SettingsError, StructattnError, UsageError
from structattn.support.json_files import DIGEST
from structattn.support.processes import start_context
from structattn.sweeps import sweep as sweeps
from structattn.sweeps import worker
from structattn.sweeps.engines import ProcessPoolEngine
from structattn.sweeps.outcome import outcome_of_run
from structattn.sweeps.report import write_sweep_page
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.sweep import run_sweep
from structattn.sweeps.trials import make_trials
from structattn.sweeps.trials_file import store_outcome
from structattn.sweeps.worker import SweepFolder


def run_by_workers(tree, folder, max_jobs=2):
    sweep = SweepSettings.model_validate(tree)
    return run_sweep(sweep, folder, lambda: ProcessPoolEngine(max_jobs), lambda status: None)


def of_one_cell(tree):
    """Three trials."""
    tree["base"]["prepare"]["language"] = "dyck"
    return tree | {"grid": {}, "restarts": 3}


@pytest.fixture
def run_undisturbed(run_here):
    """run_undisturbed(tree, folder, trial_results) runs a sweep in this process; returns its rows."""
    return lambda *arguments: run_here(*arguments)[0]


def outcomes(folder):
    """Return events and best checkpoint of every run."""
    runs = sorted((folder / "runs").iterdir())
    return {run.name: ((run / "events.jsonl").read_bytes(), (run / "best.json").read_bytes()) for run in runs}


def test_a_sweep_trains_selects_and_evaluates(tree, run_undisturbed, tmp_path):
    tree["evaluate"] = {"valid": "all", "test": "selected"}
    rows = run_undisturbed(tree, tmp_path / "sweep")
    assert [row.validation.count for row in rows] == [2] * 4
    assert json.loads((tmp_path / "sweep" / "table.json").read_text())[0]["selected"] == rows[0].selected
    assert all(set(row.splits) == {"valid", "test"} for row in rows)
    assert all(row.splits["valid"]["cross_entropy_difference"] == pytest.approx(row.best, rel=1e-5) for row in rows)
    index = json.loads((tmp_path / "sweep" / "trials.json").read_text())
    scored = {run.parent.parent.name for run in (tmp_path / "sweep" / "runs").glob("*/scores/test.json")}
    assert scored == {row.selected for row in rows}
    assert len(index) == 8


@pytest.mark.usefixtures("without_drawing")
def test_the_report_of_a_sweep_shows_its_results_claims_and_published_numbers(tree, run_undisturbed, tmp_path):
    claim = {"description": "a stack <helps>", "cell": {"model": "Tf+Sup"}, "below": {"model": "Tf"}}
    values = [{"cell": {"language": "Dyck", "model": "Tf"}, "value": 0.25}]
    table = {"source": "A & B (2024)", "values": values, "settings": {"model.d_model": 8}}
    tree |= {"claims": [claim], "published": [table], "restarts": 1}
    rows = run_undisturbed(tree, tmp_path / "sweep")
    assert load_sweep(tmp_path / "sweep/sweep.yaml") == SweepSettings.model_validate(tree)
    succeed("report", tmp_path / "sweep", "--output", tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert "4 of 4 trials have ended" in page
    for row in rows:
        assert f">{', '.join(row.cell.values())}</th>" in page
        assert f">{row.best:.4g}</td>" in page
    assert "a stack &lt;helps&gt;" in page
    assert "A &amp; B (2024)" in page
    assert page.count("<svg") == 1  # of the cells, since there are no figures in the settings


def test_a_folder_with_something_else_is_refused(tree, tmp_path):
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "header.json").write_text("{}")
    with pytest.raises(StructattnError, match=r"prepared: expected a new .* found 'header\.json' in it"):
        run_by_workers(tree, tmp_path / "prepared")
    assert [entry.name for entry in (tmp_path / "prepared").iterdir()] == ["header.json"]


@pytest.mark.parametrize("name", [".sweep.yaml.0123abcd", ".trials.json.0123abcd"])
def test_what_a_loss_of_power_leaves_of_a_start_is_not_something_else(tree, run_here, tmp_path, name):
    (tmp_path / "runs").mkdir()
    (tmp_path / name).touch()
    run_here(tree | {"grid": {"language": {"Dyck": {"prepare.language": "dyck"}}}, "restarts": 1}, tmp_path)


def test_completed_trials_are_not_repeated(tree, run_undisturbed, tmp_path):
    tree["grid"].pop("model")
    rows = run_undisturbed(tree, tmp_path / "sweep")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep" / "runs").rglob("*") if path.is_file()}
    tree["restarts"] = 3
    assert [row.validation.count for row in run_undisturbed(tree, tmp_path / "sweep")] == [3] * 2
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    assert [row.validation.count for row in rows] == [2] * 2


def test_scores_of_another_checkpoint_are_recomputed(tree, run_undisturbed, tmp_path):
    tree["evaluate"] = {"valid": "all"}
    tree["grid"].pop("model")
    tree["base"]["training"] |= {"max_updates": 12, "validate_every": 4}
    rows = run_undisturbed(tree, tmp_path / "sweep")
    for run in (tmp_path / "sweep" / "runs").iterdir():
        evaluate(run, "valid", "last")
    assert run_undisturbed(tree, tmp_path / "sweep") == rows
    for path in (tmp_path / "sweep" / "runs").glob("*/scores/valid.json"):
        best = json.loads((path.parent.parent / "best.json").read_text())["update"]
        assert json.loads(path.read_text())["checkpoints"] == [best]


def test_a_run_with_another_default_is_rejected(tree, run_undisturbed, tmp_path):
    tree |= of_one_cell(tree) | {"restarts": 1}
    run_undisturbed(tree, tmp_path / "sweep")
    run = RunFolder(next((tmp_path / "sweep" / "runs").iterdir()))
    settings = run.read_settings()
    training = settings.training.model_copy(update={"max_grad_norm": 4.0})
    run.write_settings(settings.model_copy(update={"training": training}))
    with pytest.raises(StructattnError, match=r"training\.max_grad_norm was 4\.0 and is now 5\.0"):
        run_undisturbed(tree, tmp_path / "sweep")


def test_stored_results_replace_trials(tree, run_undisturbed, write_trials, tmp_path):
    tree["evaluate"] = {"valid": "all", "test": "selected"}
    tree["grid"].pop("model")
    stored = tmp_path / "results" / "recipe.trials.jsonl"
    rows = run_undisturbed(tree, tmp_path / "sweep", stored)
    lines = [json.loads(line) for line in stored.read_text().splitlines()]
    assert {line["trial"] for line in lines} == {path.name for path in (tmp_path / "sweep" / "runs").iterdir()}
    for line in lines:
        assert (line["seed"], line["commit"]) == (1 + line["restart"], source_commit())
    assert run_undisturbed(tree, tmp_path / "other", stored) == rows
    assert not list((tmp_path / "other" / "runs").iterdir())
    sweep = SweepSettings.model_validate(tree)
    read = read_sweep_results(sweep, tmp_path / "nowhere", stored)
    assert (read.rows, len(read.ended)) == (rows, 4)
    evaluate(tmp_path / "sweep" / "runs" / rows[1].selected, "train")  # later scores are added
    run_undisturbed(tree, tmp_path / "sweep", stored)
    assert "train" in read_sweep_results(sweep, tmp_path / "nowhere", stored).rows[1].splits
    write_trials(stored, [line for line in lines if line["trial"] != rows[0].selected])
    assert run_undisturbed(tree, tmp_path / "other", stored)[0] == rows[0]
    assert [path.name for path in (tmp_path / "other" / "runs").iterdir()] == [rows[0].selected]


@pytest.fixture(scope="module")
def trained(unchanged_tree, run_here, tmp_path_factory):
    """A place with the sweep of one cell and the file of its trials, for tests that change neither."""
    place = tmp_path_factory.mktemp("trained")
    run_here(of_one_cell(copy.deepcopy(unchanged_tree)), place / "sweep", place / "recipe.trials.jsonl")
    return place


@pytest.fixture
def stored(trained, tree, tmp_path):
    """A copy of the file of these trials; ``tree`` becomes that of their sweep."""
    tree |= of_one_cell(tree)
    return Path(shutil.copy(trained / "recipe.trials.jsonl", tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('"restart": 1', '"restart": 9', 1), r"jsonl:\d: changed since it was written"),
        (lambda text: text + text.splitlines()[1] + "\n", r"jsonl:4: a second line of the trial \w+, after line 2"),
        (lambda text: text.replace("\n", "\n<<<<<<< HEAD\n", 1), r"jsonl:2: not JSON"),
        (lambda text: text.replace("\n", "\n[]\n", 1), r"jsonl:2: holds list; expected a JSON object"),
        (lambda text: text.replace("\n", "\n{}\n", 1), r"jsonl:2: trial: missing"),
    ],
)
def test_a_damaged_file_of_trials_is_refused(tree, stored, change, message, tmp_path):
    text = stored.read_text()
    stored.write_text(change(text))
    assert stored.read_text() != text
    with pytest.raises(DataError, match=message):
        read_sweep_results(SweepSettings.model_validate(tree), tmp_path / "nowhere", stored)


@pytest.mark.parametrize("group", ["settings", "prepare"])
def test_stored_results_of_settings_that_another_version_knows_are_refused(tree, stored, write_trials, group, tmp_path):
    first, *others = map(json.loads, stored.read_text().splitlines())
    write_trials(stored, [first | {group: {**first[group], "colour": "red"}}, *others])
    with pytest.raises(SettingsError, match=r"jsonl:1: .*colour: no such field"):
        read_sweep_results(SweepSettings.model_validate(tree), tmp_path / "nowhere", stored)


def test_a_folder_in_place_of_a_file_of_trials_is_refused(tree, tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_sweep_results(SweepSettings.model_validate(tree), tmp_path / "nowhere", tmp_path)


def test_an_incomplete_last_line_is_left_out_and_its_trial_trained_again(tree, stored, run_here, caplog, tmp_path):
    text = stored.read_text()
    stored.write_text(text[:-20])
    rows, jobs = run_here(tree, tmp_path / "sweep", stored)
    assert f"{stored}:3: the line is incomplete and is left out" in caplog.text
    assert [job.trial.name for job in jobs] == [json.loads(text.splitlines()[-1])["trial"]]
    assert run_here(tree, tmp_path / "other", stored) == (rows, [])
    assert stored.read_text().count("\n") == 3


def test_sweeps_at_once_lose_no_line(trained, stored, tree, tmp_path):
    sweep, copies = SweepSettings.model_validate(tree), tmp_path / "copies.trials.jsonl"
    folder = SweepFolder(trained / "sweep")
    trials = make_trials(sweep, folder.path)
    context = start_context()
    processes = [context.Process(target=store, args=(copies, folder, trials)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert contents(copies) == contents(stored)


def contents(path):
    """Return the lines without digests and without costs, which only the process that trains a trial knows."""
    lines = map(json.loads, path.read_text().splitlines())
    return sorted(
        ({name: value for name, value in line.items() if name not in ("cpu_seconds", DIGEST)} for line in lines),
        key=lambda line: line["trial"],
    )


def test_the_cost_of_a_training_stays_when_its_line_is_written_again(trained, stored, tree):
    sweep, folder = SweepSettings.model_validate(tree), SweepFolder(trained / "sweep")
    before = stored.read_text()
    assert all(0 < json.loads(line)["cpu_seconds"] < 1000 for line in before.splitlines())
    for trial in make_trials(sweep, folder.path):
        store_outcome(stored, trial, folder.run_dir(trial), outcome_of_run(folder.run_dir(trial)))
    assert stored.read_text() == before


def store(path, folder, trials):
    for trial in trials * 3:
        store_outcome(path, trial, folder.run_dir(trial), outcome_of_run(folder.run_dir(trial)))


def test_sweeps_that_share_stored_results_keep_the_scores_of_each_other(tree, run_here, tmp_path):
    tree |= of_one_cell(tree) | {"restarts": 1}
    first, second = tree | {"evaluate": {"test": "all"}}, tree | {"evaluate": {"valid": "all"}}
    stored = tmp_path / "results.trials.jsonl"
    run_here(first, tmp_path / "first", stored)
    run_here(second, tmp_path / "second", stored)
    for sweep, folder in ((first, "first"), (second, "second"), (first, "third"), (second, "third")):
        assert run_here(sweep, tmp_path / folder, stored)[1] == []


def test_a_stored_result_replaces_a_run_that_has_only_begun(tree, run_here, tmp_path):
    tree |= of_one_cell(tree)
    stored = tmp_path / "results.trials.jsonl"
    rows, jobs = run_here(tree, tmp_path / "sweep", stored)
    for job in jobs:
        (tmp_path / "other" / "runs" / job.run_dir.name).mkdir(parents=True)
    assert run_here(tree, tmp_path / "other", stored) == (rows, [])


def test_scores_of_trials_that_were_selected_before_do_not_count(tree, run_here, tmp_path):
    tree["evaluate"] = {"test": "selected"}
    tree["grid"].pop("model")
    fresh, _ = run_here(tree | {"restarts": 3}, tmp_path / "fresh")
    for restarts in (1, 2, 3):
        grown, _ = run_here(tree | {"restarts": restarts}, tmp_path / "grown")
    assert grown == fresh


@pytest.mark.parametrize("which", ["all", "selected"])
def test_a_trial_whose_data_lack_an_evaluated_split_is_not_trained(tree, run_here, tmp_path, which):
    tree |= {"evaluate": {"gen": which}, "halving": {"after": [2], "keep": 0.5}}
    with pytest.raises(
        StructattnError, match=r"2 of 2 trials failed:\n.*has no split 'gen'; it has train, valid, test"
    ):
        run_here(of_one_cell(tree) | {"restarts": 2}, tmp_path / "sweep")
    assert not list((tmp_path / "sweep" / "runs").glob("*"))


def test_a_trial_too_long_to_be_evaluated_is_not_trained(tree, run_here, tmp_path):
    tree["base"]["model"]["positions"] = {"kind": "learned", "max_positions": 7}
    tree["evaluate"] = {"test": "all"}
    with pytest.raises(StructattnError, match=r"max_positions: test example \d has 9 tokens; the model has 7 learned"):
        run_here(of_one_cell(tree), tmp_path / "sweep")
    assert not list((tmp_path / "sweep" / "runs").glob("*"))


def test_a_trial_that_cannot_be_evaluated_has_failed_once(tree, run_here, tmp_path, monkeypatch):
    def fails(run_dir, split, data):
        raise DataError(data, f"{split} cannot be read")

    monkeypatch.setattr(worker, "evaluate", fails)
    tree["evaluate"] = {"valid": "all", "test": "selected"}
    with pytest.raises(StructattnError, match="3 of 3 trials failed") as error:
        run_here(of_one_cell(tree), tmp_path / "sweep")
    assert len(error.value.__notes__) == 3


def test_on_a_full_disk_the_errors_of_the_trials_are_reported(tree, run_here, tmp_path, monkeypatch):
    def full(write):
        def writes_other_files(path, *content):
            if path.name in ("failed.json", "table.json"):
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            write(path, *content)

        return writes_other_files

    tree["evaluate"] = {"gen": "all"}
    for name in ("write_json", "replace_file"):
        monkeypatch.setattr(sweeps, name, full(getattr(sweeps, name)))
    with pytest.raises(StructattnError, match="8 of 8 trials failed"):
        run_here(tree, tmp_path / "sweep")


@pytest.mark.parametrize("max_jobs", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_results_do_not_depend_on_the_number_of_workers(tree, run_here, tmp_path, max_jobs):
    tree |= {"restarts": 1, "evaluate": {"valid": "all"}}
    rows, _ = run_here(tree, tmp_path / "here")
    assert run_by_workers(tree, tmp_path / "there", max_jobs) == rows
    assert outcomes(tmp_path / "here") == outcomes(tmp_path / "there")


def test_a_failing_trial_is_reported_and_the_others_complete(tree, run_undisturbed, tmp_path):
    tree["grid"]["language"]["none"] = {"prepare.language": "dyck", "prepare.train_lengths": [3, 3]}
    tree["restarts"] = 1
    with pytest.raises(StructattnError, match=r"2 of 6 trials failed:\n.*none Tf #0 .*has no strings of the lengths"):
        run_undisturbed(tree, tmp_path / "sweep")
    table = json.loads((tmp_path / "sweep" / "table.json").read_text())
    assert len(table) == 4
    file, output = tmp_path / "sweep.yaml", tmp_path / "sweep"
    claim = {
        "description": "it fails",
        "cell": {"language": "none"},
        "score": "validation",
        "statistic": "mean",
    }
    file.write_text(json.dumps(tree | {"claims": [claim | {"above": {"language": "Dyck"}}]}))
    again = invoke("sweep", file, "-o", output, "--workers", "1", "--json")
    assert again.exit_code == 1
    assert json.loads(again.stdout) == table
    assert "2 of 6 trials failed" in again.stderr
    page = write_sweep_page(output, tmp_path / "page").read_text()
    assert "4 of 6 trials have ended, 2 failed" in page
    assert page.count("0 of 1") == 2
    assert "no trial of none, Tf has the score" in page


def children(pid):
    """Return the process ids of the workers that a process has forked for jobs."""
    found = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in found.splitlines()]
    servers = [row[0] for row in rows if int(row[1]) == pid and "forkserver" in row[2]]
    return [int(row[0]) for row in rows if row[1] in servers]


def killed_sweep(file, folder, worker_kills, generator):
    """Run a sweep with random kills of workers and of the controller; return the number of kills of each."""
    hits, crash_counts = 0, 0
    program = "from structattn.cli.main import main; main()"
    command = [sys.executable, "-c", program, "sweep", str(file), "-o", str(folder), "--workers", "2"]
    while True:
        controller = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while controller.poll() is None:
            time.sleep(generator.uniform(0.05, 0.3))
            workers = children(controller.pid) if hits < worker_kills else []
            if workers:
                with contextlib.suppress(ProcessLookupError):  # it may have ended in the meantime
                    os.kill(generator.choice(workers), signal.SIGKILL)
                    hits += 1
            if hits > worker_kills // 2 and not crash_counts:
                controller.kill()
                crash_counts += 1
                break
        message = controller.communicate()[1].decode()
        if controller.returncode == 0:
            return hits, crash_counts
        assert controller.returncode == -signal.SIGKILL, message


@pytest.mark.slow
@pytest.mark.parametrize("halving", [None, {"after": [40, 80], "unit": "updates"}])
def test_killed_workers_and_controllers_change_nothing(tree, tmp_path, halving):
    tree["base"]["training"]["max_updates"] = 120  # long enough to be met at work
    tree["halving"] = halving
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    run_by_workers(tree, tmp_path / "quiet")
    hits, crash_counts = killed_sweep(tmp_path / "sweep.yaml", tmp_path / "killed", 4, random.Random(1))
    assert hits >= 3
    assert crash_counts == 1
    assert outcomes(tmp_path / "killed") == outcomes(tmp_path / "quiet")
    assert json.loads((tmp_path / "killed/table.json").read_text()) == json.loads(
        (tmp_path / "quiet/table.json").read_text()
    )


def test_the_cells_of_a_sweep_are_compared_over_seeds(tree, run_here, tmp_path):
    """By cell, and by an axis, in pairs of the same language and seed."""
    from structattn.cli.compare_groups import compare_groups

    tree["evaluate"] = {"test": "all"}
    tree["random"] = {}
    run_here(tree, tmp_path / "sweep")
    _, cells = compare_groups([tmp_path / "sweep"], None, None, "test")
    assert [each.name for each in cells] == ["w#w^R, Tf", "w#w^R, Tf+Sup", "Dyck, Tf", "Dyck, Tf+Sup"]
    assert [each.scores.count for each in cells] == [2] * 4
    assert [each.difference.pairs for each in cells[1:]] == [2] * 3
    _, (base, other) = compare_groups([tmp_path / "sweep"], "model", "Tf", "test")
    means = [each.scores.mean for each in cells]
    assert base.scores.mean == pytest.approx((means[0] + means[2]) / 2)
    assert other.difference.pairs == 4
    assert other.difference.mean == pytest.approx((means[1] + means[3] - means[0] - means[2]) / 2)
    with pytest.raises(UsageError, match="no such axis; expected one of language, model"):
        compare_groups([tmp_path / "sweep"], "layers", None, "test")


def test_wrong_settings_behind_published_numbers_are_reported_and_nothing_is_started(tree, run_here, tmp_path):
    value = {"cell": {"language": "Dyck", "model": "Tf"}, "value": 1}
    tree["published"] = [{"source": "a paper", "settings": {"model.layer": 2}, "values": [value]}]
    with pytest.raises(SettingsError, match=r"published settings of Dyck Tf: model\.layer: no such field"):
        run_here(tree, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("task", "data", "message"),
    [
        ("formal_language", {"language": "dyk"}, "formal language 'dyk' is unknown; expected a file"),
        ("recognition", {"kind": "recognition", "language": "pariti"}, "language 'pariti' is unknown; expected a file"),
        (
            "masked_transduction",
            {"kind": "transduction", "transduction": "x"},
            "transduction 'x' is unknown; expected one of",
        ),
    ],
)
def test_unknown_languages_are_reported_and_nothing_is_started(tree, run_here, tmp_path, task, data, message):
    tree["base"] |= {"task": task, "prepare": data}
    tree["grid"] = {"size": {"small": {"model.d_model": 8}}}
    with pytest.raises(SettingsError, match=f"trial small #0: prepare: {message}"):
        run_here(tree, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree))
    shown = invoke("sweep", tmp_path / "sweep.yaml", "-o", tmp_path / "s", "--dry-run")
    assert shown.exit_code != 0
    assert shown.exit_code == 1
    assert f"trial small #0: prepare: {message}" in shown.output


def test_a_dry_run_prints_json_and_adds_nothing(tree, tmp_path):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree))
    words = ["sweep", str(tmp_path / "sweep.yaml"), "-o", str(tmp_path / "s"), "--dry-run"]
    assert json.loads(invoke(*words, "--json").stdout) == {"trials": 8}
    shown = invoke(*words, "--add", tmp_path / "run")
    assert shown.exit_code == 2
    assert "--add scores runs; expected none of --dry-run" in " ".join(shown.stderr.split())
    assert not (tmp_path / "s").exists()


def test_missing_data_are_reported_once_and_nothing_is_started(tree, run_here, tmp_path):
    del tree["base"]["prepare"]
    tree["grid"] = {"data": {"one": {"data": str(tmp_path / "one")}, "two": {"data": str(tmp_path / "two")}}}
    with pytest.raises(DataError, match="one: no such folder; expected one that `structattn prepare` has written"):
        run_here(tree, tmp_path / "sweep")
    assert not list((tmp_path / "sweep" / "runs").iterdir())
