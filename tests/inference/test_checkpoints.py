"""Which checkpoints are meant, and the mean of their weights."""

import shutil

import pytest
import torch

from structattn.data.formal_languages import FormalLanguageSizes, prepare_formal_language
from structattn.evaluation.run_evaluation import evaluate
from structattn.inference.checkpoints import checkpoints_of, mean_weights
from structattn.inference.runs import open_run
from structattn.runs.events import events_of
from structattn.settings.run import load_settings, resolve_settings
from structattn.support.errors import CheckpointError, UsageError
from structattn.training.train import train


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """Twelve updates with a checkpoint and a validation every second one, all kept."""
    place = tmp_path_factory.mktemp("averages")
    prepare_formal_language(place / "data", "dyck", sizes=FormalLanguageSizes(40, 10, 2, (6, 8), (6, 8)))
    training = {"max_updates": 12, "validate_every": 2, "keep_checkpoints": 9, "optimizer": {"learning_rate": 0.05}}
    tree = {
        "task": "formal_language",
        "data": str(place / "data"),
        "model": {"width": 8, "heads": 2, "feedforward_width": 8, "layers": 1},
        "training": {**training, "max_epochs": None},
    }
    train(resolve_settings(tree), place / "run")
    return place / "run"


def updates(folder, which):
    return [int(path.name) for path in checkpoints_of(folder, which)]


def test_the_newest_and_the_best(run_folder):
    scores = {
        event["update"]: event["cross_entropy"]
        for event in events_of(run_folder / "events.jsonl")
        if event["event"] == "validation"
    }
    assert updates(run_folder, "last") == [12]
    assert updates(run_folder, "last-3") == [12, 10, 8]
    by_score = sorted(scores, key=scores.__getitem__)
    assert updates(run_folder, "best") == by_score[:1]
    assert updates(run_folder, "best-2") == sorted(by_score[:2], reverse=True)


@pytest.mark.parametrize("which", ["worst", "last-0", "best-", "last-5x", ""])
def test_other_words_are_refused(run_folder, which):
    with pytest.raises(UsageError, match="not one of best, last, best-K, last-K"):
        checkpoints_of(run_folder, which)


def test_more_than_there_are_is_refused(run_folder):
    with pytest.raises(CheckpointError, match="holds 6 checkpoints of those asked for: last-7"):
        checkpoints_of(run_folder, "last-7")


def test_a_best_one_that_was_not_kept_is_missed(run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "run")
    gone = min({*updates(run_folder, "best-3")} - {12})
    shutil.rmtree(tmp_path / "run" / "checkpoints" / str(gone))
    with pytest.raises(CheckpointError, match=f"the checkpoint of update {gone}, one of the 3 best, was not kept"):
        checkpoints_of(tmp_path / "run", "best-3")


def test_a_run_keeps_the_best_that_its_evaluation_needs(run_folder, tmp_path):
    settings = load_settings(
        run_folder / "settings.yaml", ["training.keep_checkpoints=2", "evaluation.checkpoint=best-4"]
    )
    train(settings, tmp_path / "run")
    assert updates(tmp_path / "run", "best-4") == updates(run_folder, "best-4")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) < 6


def test_a_validation_whose_checkpoint_is_still_to_come_does_not_count(run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "12")
    assert 12 not in updates(tmp_path / "run", "best-3")


def test_the_mean_is_that_of_every_weight(run_folder):
    one_by_one = [mean_weights([path])[0] for path in checkpoints_of(run_folder, "last-3")]
    mean, manifest = mean_weights(checkpoints_of(run_folder, "last-3"))
    assert manifest.update == 12
    assert mean.keys() == one_by_one[0].keys()
    for name, found in mean.items():
        expected = torch.stack([weights[name].double() for weights in one_by_one]).mean(0)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-7, atol=1e-9)
    assert any(not torch.equal(found, one_by_one[0][name]) for name, found in mean.items())


def test_runs_open_and_are_scored_with_averages(run_folder):
    model = open_run(run_folder, "last-2").model
    mean = mean_weights(checkpoints_of(run_folder, "last-2"))[0]
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, mean[name])
    assert evaluate(run_folder, "test", "last-2") != evaluate(run_folder, "test", "last")


def test_a_damaged_one_is_refused_by_name(run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "run")
    damaged = checkpoints_of(tmp_path / "run", "last-2")[1] / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"10/model.safetensors.*SHA-256"):
        open_run(tmp_path / "run", "last-2")
