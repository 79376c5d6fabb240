"""Checkpoints by name, and the average of their weights."""

import shutil

import pytest
import torch

from structattn.loading.evaluate import evaluate
from structattn.loading.runs import open_run
from structattn.runs.logs import events_of
from structattn.runs.selection import checkpoints_of, mean_weights
from structattn.settings.run import load_settings, resolve_settings
from structattn.support.errors import CheckpointError, UsageError
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.training.run_training import train


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


def test_a_damaged_checkpoint_is_rejected_by_path(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "run")
    damaged = checkpoints_of(tmp_path / "run", "last-2")[1] / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"10/model.safetensors.*SHA-256"):
        open_run(tmp_path / "run", "last-2")
