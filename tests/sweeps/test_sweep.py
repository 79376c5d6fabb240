"""Whole sweeps: what is killed goes on, and the results are those of a quiet sweep."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import yaml

from structattn.evaluation.evaluate import evaluate
from structattn.settings.sweep import SweepSettings
from structattn.support.errors import StructattnError
from structattn.sweeps.pool import Pool
from structattn.sweeps.sweep import run_sweep


def quiet(tree, folder, slots=2):
    return run_sweep(SweepSettings.model_validate(tree), folder, lambda: Pool(slots), lambda standing: None)


def outcomes(folder):
    """What every run came to, but for the place of its data."""
    runs = sorted((folder / "runs").iterdir())
    return {run.name: ((run / "events.jsonl").read_bytes(), (run / "best.json").read_bytes()) for run in runs}


def test_a_sweep_trains_selects_and_scores(tree, tmp_path):
    tree["evaluate"] = {"valid": "all", "test": "selected"}
    rows = quiet(tree, tmp_path / "sweep")
    assert [row.validation.count for row in rows] == [2] * 4
    assert json.loads((tmp_path / "sweep" / "table.json").read_text())[0]["selected"] == rows[0].selected
    assert all(set(row.splits) == {"valid", "test"} for row in rows)
    assert all(row.splits["valid"]["cross_entropy_difference"] == pytest.approx(row.best, rel=1e-5) for row in rows)
    index = json.loads((tmp_path / "sweep" / "trials.json").read_text())
    scored = {run.parent.parent.name for run in (tmp_path / "sweep" / "runs").glob("*/scores/test.json")}
    assert scored == {row.selected for row in rows}
    assert len(index) == 8


def test_what_has_ended_is_not_done_again(tree, tmp_path):
    rows = quiet(tree, tmp_path / "sweep")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep" / "runs").rglob("*") if path.is_file()}
    tree["restarts"] = 3
    assert [row.validation.count for row in quiet(tree, tmp_path / "sweep")] == [3] * 4
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    assert [row.validation.count for row in rows] == [2] * 4


def test_scores_of_other_checkpoints_are_made_anew(tree, tmp_path):
    tree["evaluate"] = {"valid": "all"}
    tree["base"]["training"]["validate_every"] = 4
    rows = quiet(tree, tmp_path / "sweep")
    for run in (tmp_path / "sweep" / "runs").iterdir():
        evaluate(run, "valid", "last")
    assert quiet(tree, tmp_path / "sweep") == rows
    for path in (tmp_path / "sweep" / "runs").glob("*/scores/valid.json"):
        best = json.loads((path.parent.parent / "best.json").read_text())["update"]
        assert json.loads(path.read_text())["checkpoints"] == [best]


def test_a_run_under_another_default_is_not_taken_for_the_trial(tree, tmp_path):
    quiet(tree, tmp_path / "sweep")
    settings = next((tmp_path / "sweep" / "runs").glob("*/settings.yaml"))
    settings.write_text(settings.read_text().replace("clip_norm: 5.0", "clip_norm: 4.0"))
    with pytest.raises(StructattnError, match=r"training\.clip_norm was 4\.0 and is now 5\.0"):
        quiet(tree, tmp_path / "sweep")


def test_results_do_not_depend_on_the_number_of_workers(tree, tmp_path):
    quiet(tree, tmp_path / "one", slots=1)
    quiet(tree, tmp_path / "many", slots=4)
    assert outcomes(tmp_path / "one") == outcomes(tmp_path / "many")


def test_a_trial_that_fails_is_named_and_the_others_end(tree, tmp_path):
    tree["grid"]["language"]["none"] = {"prepare.language": "dyck", "prepare.train_lengths": [3, 3]}
    with pytest.raises(StructattnError, match=r"4 of 12 trials failed:\n.*none Tf #0 .*has no strings of the lengths"):
        quiet(tree, tmp_path / "sweep")
    assert len(json.loads((tmp_path / "sweep" / "table.json").read_text())) == 4


def children(pid):
    """The living descendants of a process that run Python code of a worker: those that were forked for a job."""
    found = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in found.splitlines()]
    servers = [row[0] for row in rows if int(row[1]) == pid and "forkserver" in row[2]]
    return [int(row[0]) for row in rows if row[1] in servers]


def killed_sweep(file, folder, worker_kills, generator):
    """Run a sweep, killing its workers now and then, itself after half of them; return how many of each were hit."""
    hits, deaths = 0, 0
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
            if hits > worker_kills // 2 and not deaths:
                controller.kill()
                deaths += 1
                break
        message = controller.communicate()[1].decode()
        if controller.returncode == 0:
            return hits, deaths
        assert controller.returncode == -signal.SIGKILL, message


def test_killed_workers_and_controllers_change_nothing(tree, tmp_path):
    tree["base"]["training"]["max_updates"] = 120  # long enough to be met at work
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    quiet(tree, tmp_path / "quiet")
    hits, deaths = killed_sweep(tmp_path / "sweep.yaml", tmp_path / "killed", 4, random.Random(1))
    assert hits >= 3
    assert deaths == 1
    assert outcomes(tmp_path / "killed") == outcomes(tmp_path / "quiet")
    assert json.loads((tmp_path / "killed/table.json").read_text()) == json.loads(
        (tmp_path / "quiet/table.json").read_text()
    )
