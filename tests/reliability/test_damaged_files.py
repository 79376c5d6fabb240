"""Damaged files of runs and prepared folders are refused in one line that names them, whatever reads them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch

from structattn import load
from structattn.loading.evaluate import evaluate
from structattn.report.runs import read_run
from structattn.runs.folder import RunFolder
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError, DataError, SettingsError, StructattnError
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

ROOT = Path(__file__).parents[2]
FUZZ = ROOT / "benchmarks" / "fuzz_files.py"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, prepared_folder):
    """Settings and a finished run, beside a copy of its data."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(prepared_folder, folder / "data")
    model = {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": "1"}
    tree = {"task": "formal_language", "data": str(folder / "data"), "model": model}
    settings = resolve_settings({**tree, "training": {"max_updates": 4, "checkpoint_every": 2}})
    train(settings, folder / "run")
    evaluate(folder / "run", "valid")
    return settings, folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run, with its own copy of the data."""
    settings, folder = trained
    shutil.copytree(folder / "data", tmp_path / "data")
    shutil.copytree(folder / "run", tmp_path / "run")
    files = RunFolder(tmp_path / "run")
    files.write_settings(settings.model_copy(update={"data": tmp_path / "data"}))
    return files


def change_byte(path, place=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["valid/tokens.bin", "train/tokens.bin", "valid/log_probabilities.bin"])
def test_evaluation_refuses_changed_data(run, name):
    change_byte(run.path.parent / "data" / name)
    with pytest.raises(DataError, match=rf"{name}: changed since it was written"):
        evaluate(run.path, "valid")


def test_evaluation_refuses_changed_settings(run):
    run.settings.write_text(run.settings.read_text().replace("num_heads: 2", "num_heads: 4", 1))
    for read in (evaluate, load, read_run):
        with pytest.raises(SettingsError, match=r"settings\.yaml: changed since it was written"):
            read(run.path)


def test_evaluation_refuses_the_settings_of_another_run(run):
    settings = run.read_settings()
    run.write_settings(settings.model_copy(update={"model": settings.model.model_copy(update={"num_heads": 4})}))
    with pytest.raises(CheckpointError, match=r"checkpoints/\d: was trained with settings of digest .*settings\.yaml"):
        evaluate(run.path, "valid")


def test_evaluation_refuses_a_changed_name_of_the_best_checkpoint(run):
    best = json.loads(run.best.read_text())
    run.best.write_text(json.dumps({**best, "update": 2}))
    with pytest.raises(DataError, match=r"best\.json: changed since it was written"):
        evaluate(run.path, "valid")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(run, value):
    folder = run.checkpoints / "4"
    weights = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    weights["output.bias"][0] = value
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(weights))
    sys.path.append(str(FUZZ.parent))
    from file_mutations import forge_digests

    forge_digests(run.path, run.path.parent / "data")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: .*'output\.bias' has a weight that is NaN or inf"):
        load(run.path, "last")


def test_exchanged_checkpoints_are_refused(run):
    (run.checkpoints / "2").rename(run.checkpoints / "aside")
    (run.checkpoints / "4").rename(run.checkpoints / "2")
    (run.checkpoints / "aside").rename(run.checkpoints / "4")
    with pytest.raises(CheckpointError, match=r"4/MANIFEST\.json: is for update 2, not for that of its folder"):
        load(run.path, "last")


def test_a_log_that_is_damaged_before_the_checkpoint_is_not_continued(run):
    card, lines = run.read_card(), run.events.read_bytes().splitlines(keepends=True)
    run.write_card({**card, "result": None})
    run.events.write_bytes(b"".join([lines[0].replace(b"1", b"2"), *lines[1:-1]]))
    with pytest.raises(CheckpointError, match=r"events\.jsonl: its first \d+ bytes have changed: their SHA-256 was"):
        train(run.read_settings(), run.path, resume=True)


def test_a_report_refuses_a_changed_log(run):
    change_byte(run.events, 30)
    with pytest.raises(CheckpointError, match=r"events\.jsonl: its first \d+ bytes have changed"):
        read_run(run.path)


def test_a_changed_end_event_is_refused(run):
    run.events.write_bytes(run.events.read_bytes().replace(b'"reason": "updates"', b'"reason": "epochs"'))
    with pytest.raises(CheckpointError, match=r"events\.jsonl: its end event differs from the result in .*run\.json"):
        train(run.read_settings(), run.path, resume=True)


def test_exchanged_scores_are_refused(run):
    shutil.copy(run.path / "scores" / "valid.json", run.path / "scores" / "test.json")
    with pytest.raises(DataError, match=r"scores/test\.json: changed since it was written"):
        read_run(run.path)


@pytest.mark.parametrize("card", [{}, {"data": 1}, {"hardware": []}, {"result": {}}, {"seed": "1"}])
def test_a_run_card_of_another_shape_is_refused(run, card):
    run.write_card({**run.read_card(), **card} if card else {})
    with pytest.raises(DataError, match=r"run\.json: [a-z_.]+: "):
        train(run.read_settings(), run.path, resume=True)


def test_deeply_nested_json_is_refused(run):
    for depth in (100, 100_000):
        run.card.write_text('{"a":' * depth + "1" + "}" * depth)
        with pytest.raises(DataError, match=r"run\.json: not JSON: lists and objects are nested more than 64 deep"):
            read_run(run.path)


FILES = ["settings.yaml", "run.json", "best.json", "events.jsonl", "checkpoints/4/MANIFEST.json", "scores/valid.json"]
FILES += [
    "checkpoints/4/model.safetensors",
    "../data/header.json",
    "../data/vocabulary.txt",
    "../data/valid/tokens.bin",
]


def read_all(run_dir):
    """Read every file of a run that loading and reports read."""
    read_run(run_dir)
    return load(run_dir, device="cpu").metadata


@pytest.mark.timeout(600)
@pytest.mark.covering(1)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["FIFO", "link to /dev/zero", "folder"])
def test_only_regular_files_are_read(run, name, kind):
    path = run.path / name
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(StructattnError, match=path.name):
        read_all(run.path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["lock", "events.jsonl", "timing.jsonl"])
def test_files_that_training_appends_to_must_be_its_own(run, name, tmp_path):
    run.write_card({**run.read_card(), "result": None})
    run.events.write_bytes(b"".join(run.events.read_bytes().splitlines(keepends=True)[:-1]))
    (tmp_path / "thesis.tex").write_bytes((run.path / name).read_bytes())
    before = (tmp_path / "thesis.tex").read_bytes()
    (run.path / name).unlink()
    (run.path / name).symlink_to(tmp_path / "thesis.tex")
    with pytest.raises(StructattnError, match=rf"{name}: is not a regular file"):
        train(run.read_settings(), run.path, resume=True)
    assert (tmp_path / "thesis.tex").read_bytes() == before


@pytest.mark.parametrize("name", ["../run.json", "/etc/passwd", "valid/../../x", ""])
def test_a_header_cannot_name_files_outside_its_folder(run, name):
    path = run.path.parent / "data" / "header.json"
    header = json.loads(path.read_text())
    header["files"][name] = "0" * 64
    path.write_text(json.dumps(header))
    with pytest.raises(DataError, match=r"header\.json: not a header: files"):
        open_prepared(path.parent)


@pytest.mark.apart
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [40, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_change_nothing(count):
    command = [sys.executable, str(FUZZ), "--count", str(count), "--seed", str(count)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-5000:]
