"""Checkpoints by name, and the average of their weights."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from tests.program import succeed

import structattn
from structattn.explorer.recording_files import read_recording
from structattn.explorer.run_analysis import analyze
from structattn.loading.evaluate import evaluate, is_scored
from structattn.loading.runs import load, open_run
from structattn.runs.folder import RunFolder
from structattn.runs.logs import events_of
from structattn.runs.selection import checkpoints_of, mean_weights
from structattn.settings.run import load_settings, resolve_settings
from structattn.support.errors import CheckpointError, UsageError
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.training.run_training import train

SOURCES = Path(structattn.__file__).parent


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """Twelve updates with a checkpoint and a validation every second one, all kept."""
    folder = tmp_path_factory.mktemp("averages")
    prepare_formal_language(folder / "data", "dyck", sizes=FormalLanguageSizes(40, 10, 2, (6, 8), (6, 8)))
    training = {"max_updates": 12, "validate_every": 2, "keep_checkpoints": 9, "optimizer": {"learning_rate": 0.05}}
    tree = {
        "task": "formal_language",
        "data": str(folder / "data"),
        "model": {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1},
        "training": {**training, "max_epochs": None},
    }
    train(resolve_settings(tree), folder / "run")
    return folder / "run"


def updates(run_dir, name):
    return [int(path.name) for path in checkpoints_of(run_dir, name)]


def test_the_latest_and_the_best_checkpoint(run_dir):
    scores = {
        event["update"]: event["cross_entropy"]
        for event in events_of(run_dir / "events.jsonl")
        if event["event"] == "validation"
    }
    assert updates(run_dir, "last") == [12]
    assert updates(run_dir, "last-3") == [12, 10, 8]
    by_score = sorted(scores, key=scores.__getitem__)
    assert updates(run_dir, "best") == by_score[:1]
    assert updates(run_dir, "best-2") == sorted(by_score[:2], reverse=True)


@pytest.mark.parametrize("name", ["worst", "last-0", "best-", "last-5x", ""])
def test_unknown_names_are_rejected(run_dir, name):
    with pytest.raises(UsageError, match="not one of best, last, best-K, last-K"):
        checkpoints_of(run_dir, name)


def test_more_checkpoints_than_there_are_is_rejected(run_dir):
    with pytest.raises(CheckpointError, match="last-7 needs 7 checkpoints; there are 6"):
        checkpoints_of(run_dir, "last-7")


def test_a_best_checkpoint_that_was_not_kept_is_reported(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "run")
    gone = min({*updates(run_dir, "best-3")} - {12})
    shutil.rmtree(tmp_path / "run" / "checkpoints" / str(gone))
    with pytest.raises(CheckpointError, match=f"the checkpoint of update {gone}, one of the 3 best, was not kept"):
        checkpoints_of(tmp_path / "run", "best-3")


def test_a_run_keeps_the_best_that_its_evaluation_needs(run_dir, tmp_path):
    settings = load_settings(run_dir / "settings.yaml", ["training.keep_checkpoints=2", "evaluation.checkpoint=best-4"])
    train(settings, tmp_path / "run")
    assert updates(tmp_path / "run", "best-4") == updates(run_dir, "best-4")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) < 6


def test_a_validation_without_its_checkpoint_is_ignored(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "12")
    assert 12 not in updates(tmp_path / "run", "best-3")


def test_every_weight_is_averaged(run_dir):
    single = [mean_weights([path])[0] for path in checkpoints_of(run_dir, "last-3")]
    mean, manifest = mean_weights(checkpoints_of(run_dir, "last-3"))
    assert manifest.update == 12
    assert mean.keys() == single[0].keys()
    for name, found in mean.items():
        expected = torch.stack([weights[name].double() for weights in single]).mean(0)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-7, atol=1e-9)
    assert any(not torch.equal(found, single[0][name]) for name, found in mean.items())


def test_runs_are_opened_and_scored_with_averages(run_dir):
    model = open_run(run_dir, "last-2").model
    mean = mean_weights(checkpoints_of(run_dir, "last-2"))[0]
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.cpu(), mean[name])
    assert evaluate(run_dir, "test", "last-2") != evaluate(run_dir, "test", "last")


@pytest.fixture
def averaging_run_dir(run_dir, tmp_path):
    """A run whose settings name the average of its last three checkpoints, which are not the best."""
    folder = RunFolder(shutil.copytree(run_dir, tmp_path / "averaging"))
    evaluation = folder.read_settings().evaluation.changed({"checkpoint": "last-3"})
    folder.write_settings(folder.read_settings().model_copy(update={"evaluation": evaluation}))
    assert updates(folder.path, "best") != updates(folder.path, "last-3")
    return folder.path


def test_a_run_has_the_weights_that_its_settings_name(averaging_run_dir):
    assert load(averaging_run_dir).averaged_updates == (12, 10, 8)
    assert load(averaging_run_dir, "best").averaged_updates == tuple(updates(averaging_run_dir, "best"))
    assert open_run(averaging_run_dir).averaged_updates == (12, 10, 8)
    mean = mean_weights(checkpoints_of(averaging_run_dir, "last-3"))[0]
    assert all(torch.equal(each.cpu(), mean[name]) for name, each in load(averaging_run_dir).model.named_parameters())
    assert evaluate(averaging_run_dir, "test") == evaluate(averaging_run_dir, "test", "last-3")
    assert is_scored(averaging_run_dir, "test")
    assert read_recording(analyze(averaging_run_dir, "test")).run["update"] == 12


def test_a_loaded_run_gives_the_scores_of_the_command(averaging_run_dir):
    run = load(averaging_run_dir)
    text = "".join(run.prepared.vocabulary.symbols[3:5])
    done = succeed("score", averaging_run_dir, input=f"{text}\n")
    (score,) = run.score([text])
    assert score.log_probability == pytest.approx(float(done.stdout.split()[0]), rel=1e-5)
    assert score != load(averaging_run_dir, "best").score([text])[0]


def test_every_function_with_a_checkpoint_takes_that_of_the_settings_by_default():
    """A default of its own would give other weights than the commands, without an error."""
    found = {}
    texts = {path: path.read_text("utf-8") for path in SOURCES.rglob("*.py")}
    for path in (path for path, text in texts.items() if re.search(r"\bcheckpoint\s*[:=]", text)):
        for node in ast.walk(ast.parse(texts[path])):
            if isinstance(node, ast.FunctionDef):
                names = [argument.arg for argument in node.args.args][::-1]
                defaults = dict(zip(names, map(ast.unparse, node.args.defaults[::-1]), strict=False))
                if "checkpoint" in defaults:
                    found[f"{path.relative_to(SOURCES)}: {node.name}"] = defaults["checkpoint"]
    assert len(found) >= 5
    assert {name: default for name, default in found.items() if default != "None"} == {}


def test_a_damaged_checkpoint_is_rejected_by_path(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "run")
    damaged = checkpoints_of(tmp_path / "run", "last-2")[1] / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"10/model.safetensors.*SHA-256"):
        open_run(tmp_path / "run", "last-2")


def test_checkpoints_of_other_settings_are_not_averaged(run_dir, tmp_path):
    first, second = checkpoints_of(run_dir, "last-2")
    other = Path(shutil.copytree(second, tmp_path / second.name))
    manifest = other / "MANIFEST.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"settings_digest": "0" * 64}))
    with pytest.raises(CheckpointError, match="settings"):
        mean_weights([first, other])
