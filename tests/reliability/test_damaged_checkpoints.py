"""Damaged checkpoints are rejected, never execute code, and are replaced by the previous intact one."""

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from structattn.runs.store import checkpoint_updates
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError
from structattn.training.run_training import train

LOADER = Path(__file__).with_name("hostile_loader.py")


@pytest.fixture(scope="module")
def killed(new_starter, small_settings, tmp_path_factory):
    """Settings and a run that was killed after some checkpoints."""
    folder = tmp_path_factory.mktemp("killed")
    starter, settings, stage = new_starter(folder / "log"), small_settings(checkpoint_every=3), 90
    while starter.wait(starter.start(settings, folder / str(stage), die_at=stage)) == 0:
        stage -= 10
    assert len(checkpoint_updates(folder / str(stage) / "checkpoints")) >= 2
    return settings, folder / str(stage)


@pytest.fixture
def interrupted(killed, tmp_path):
    settings, folder = killed
    return settings, Path(shutil.copytree(folder, tmp_path / "run"))


def newest(folder):
    return folder / "checkpoints" / str(max(checkpoint_updates(folder / "checkpoints")))


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"])
@pytest.mark.parametrize("damage", ["truncated", "emptied", "removed", "one bit"])
def test_damaged_newest_checkpoint_is_skipped_with_a_warning(interrupted, finished_run, outcome, caplog, name, damage):
    settings, folder = interrupted
    path = newest(folder) / name
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        middle = len(content) // 2
        one_bit = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes({"truncated": content[:-2], "emptied": b"", "one bit": one_bit}[damage])
    with caplog.at_level(logging.WARNING):
        train(resolve_settings(settings), folder, resume=True)
    assert "falling back to the previous checkpoint" in caplog.text
    assert str(newest(folder).parent) in caplog.text
    assert outcome(folder) == outcome(finished_run(settings))


def test_run_is_not_restarted_if_all_checkpoints_are_damaged(interrupted):
    settings, folder = interrupted
    for path in (folder / "checkpoints").glob("*/model.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"all checkpoints are damaged; the oldest: .*model\.safetensors"):
        train(resolve_settings(settings), folder, resume="auto")


def load_hostile(folder, count, seed):
    command = [sys.executable, str(LOADER), str(folder), str(count), str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.apart
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [80, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malicious_checkpoints_are_rejected_and_execute_nothing(finished_run, small_settings, count):
    result = load_hostile(finished_run(small_settings()), count, seed=count)
    assert result["events"] == []
    good, *reports = result["reports"]
    assert good["outcome"] == "loaded"
    assert [report for report in reports if report["outcome"] == "crashed"] == []
    for report in reports:
        if report["outcome"] == "refused":
            assert result["folder"] in report["message"], report
        else:  # other weights with a matching manifest cannot be detected
            assert report["same"] or report["vouched"], report
    hostile = [report for report in reports if report["kind"] in {"pickle", "torch"}]
    assert len(hostile) >= count / 8
    assert {report["outcome"] for report in hostile} == {"refused"}
    named = [report for report in hostile if report["file"] != "MANIFEST.json"]
    assert all(report["file"] in report["message"] for report in named)


def test_run_folder_contains_only_known_file_types(finished_run, small_settings):
    suffixes = {path.suffix for path in finished_run(small_settings()).rglob("*") if path.is_file()}
    assert suffixes == {"", ".json", ".jsonl", ".yaml", ".safetensors"}  # "" is the lock
