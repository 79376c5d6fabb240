"""The whole workflow through the commands: prepare, train, evaluate, report."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
import yaml
from tests.program import invoke, succeed

from structattn.explorer.recording_files import read_recording
from structattn.explorer.run_analysis import analyze
from structattn.explorer.searched_text import default_examples
from structattn.loading.evaluate import evaluate
from structattn.loading.runs import open_run
from structattn.support.errors import CheckpointError, DataError, UsageError
from structattn.text.folders.prepared import open_prepared

MODEL = {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": "1.nondeterministic-2-2-3.superposition-4"}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Return a folder with a run on a formal language and a run on a stream of text."""
    folder = tmp_path_factory.mktemp("project")
    succeed("prepare", "formal-language", "marked-reversal", "-o", folder / "language", "--train", 40, "--valid", 20,
            "--test-per-length", 2, "--train-lengths", 3, 9, "--test-lengths", 3, 13)  # fmt: skip
    text = "the cat sat on the mat\nthe dog sat\n" * 6
    for split in ("train", "valid"):
        (folder / f"{split}.txt").write_text(text)
    succeed("prepare", "text", "--train", folder / "train.txt", "--valid", folder / "valid.txt", "-o", folder / "text",
            "--mode", "stream")  # fmt: skip
    tree = {"task": "formal_language", "data": str(folder / "language"), "model": MODEL, "training": {"max_epochs": 2}}
    (folder / "settings.yaml").write_text(yaml.safe_dump(tree))
    succeed("train", folder / "settings.yaml", "-o", folder / "run")
    succeed("train", folder / "settings.yaml", "task=language_modeling", f"data={folder / 'text'}", "model.layers=1",
            "training.batches={kind: stream, sequence_length: 8, batch_size: 2}",
            "-o", folder / "text-run")  # fmt: skip
    return folder


def test_repeated_training_is_rejected_and_resuming_reports_completion(workspace):
    refused = invoke("train", workspace / "settings.yaml", "-o", workspace / "run")
    assert refused.exit_code == 1
    assert "resume" in refused.stderr
    assert (
        "had already ended" in succeed("train", workspace / "settings.yaml", "-o", workspace / "run", "--resume").output
    )


def test_resuming_under_other_settings_is_rejected(workspace):
    result = invoke("train", workspace / "settings.yaml", "seed=9", "-o", workspace / "run", "--resume")
    assert result.exit_code == 1
    assert "seed was 1 and is now 9" in result.stderr


def test_evaluation_agrees_with_the_validation_of_training(workspace):
    result = succeed("evaluate", workspace / "run")
    assert "difference" in result.output
    scores = json.loads((workspace / "run" / "scores" / "valid.json").read_text())
    events = [json.loads(line) for line in (workspace / "run" / "events.jsonl").read_text().splitlines()]
    best = min((e for e in events if e["event"] == "validation"), key=lambda event: event["cross_entropy"])
    assert scores["update"] == best["update"]
    for field in ("cross_entropy", "lower_bound", "cross_entropy_difference", "perplexity"):
        assert scores[field] == pytest.approx(best[field], rel=1e-5), field
    assert scores["parameters"] == json.loads((workspace / "run" / "run.json").read_text())["parameters"]
    assert scores["prepared_digest"] == open_prepared(workspace / "language").digest
    test = json.loads((workspace / "run" / "scores" / "test.json").read_text())
    assert [row["length"] for row in test["by_length"]] == [3, 5, 7, 9, 11, 13]


def test_scores_hardly_depend_on_the_batch_size(workspace):
    sizes = [evaluate(workspace / "run", "test", batch_tokens=size) for size in (1, 40, 10_000)]
    np.testing.assert_allclose([score.cross_entropy for score in sizes], sizes[0].cross_entropy, rtol=1e-6)


def test_a_stream_has_baselines_and_no_bound(workspace):
    succeed("evaluate", workspace / "text-run", "--split", "valid")
    scores = json.loads((workspace / "text-run" / "scores" / "valid.json").read_text())
    assert scores["lower_bound"] is None
    assert scores["by_length"] == []
    assert scores["num_tokens"] == 6 * (6 + 3 + 2)
    assert scores["baselines"]["trigram"]["perplexity"] < scores["baselines"]["unigram"]["perplexity"]
    assert scores["baselines"]["unigram"]["cross_entropy"] == pytest.approx(
        np.log(scores["baselines"]["unigram"]["perplexity"])
    )


def test_explanations_are_distributions(workspace):
    path = analyze(workspace / "run", "test", [0, 3])
    assert path == workspace / "run" / "records" / "test.json"
    recorded = read_recording(path).examples
    assert [(each.split, each.example) for each in recorded] == [("test", 0), ("test", 3)]
    for example in recorded:
        assert example.tokens[0] == "<bos>"
        assert [(each.layer, each.head) for each in example.records] == [(0, 0), (0, 1), (1, None), (2, None)]
        for record in example.records:
            assert (record.weights >= 0).all()
            total = record.weights.sum(1)
            assert np.allclose(total, 1, atol=1e-4) or (record.mechanism == "superposition" and (total < 1.0001).all())
            if record.actions is not None:
                np.testing.assert_allclose(record.actions.sum(1), 1, atol=1e-4)
        assert len(example.records[2].best_run) == len(example.tokens)


@pytest.mark.usefixtures("without_drawing")
def test_the_report_of_both_runs(workspace):
    succeed("evaluate", workspace / "run", workspace / "text-run", "--split", "valid")
    output = succeed("report", workspace / "run", workspace / "text-run", "-o", workspace / "report").output
    page = (workspace / "report" / "index.html").read_text()
    assert str(workspace / "report" / "index.html") in output.replace("\n", "")
    assert "marked-reversal" in page
    assert "trigram baseline" in page


def test_examples_chosen_by_default_have_a_suitable_length(workspace):
    run, stream = open_run(workspace / "run"), open_run(workspace / "text-run")
    lengths = run.prepared.split("test").lengths
    assert [lengths[index] for index in default_examples(run, "test", 5)] == [11, 11, 13, 13, 3]
    assert default_examples(run, "test", 0) == []
    assert default_examples(stream, "valid", 99) == list(range(9))


@pytest.mark.parametrize(
    ("example", "split", "error"), [(99, "test", UsageError), (-1, "test", UsageError), (0, "no", DataError)]
)
def test_missing_examples_and_splits_are_rejected(workspace, example, split, error):
    with pytest.raises(error):
        analyze(workspace / "run", split, [example])


def test_other_data_and_missing_checkpoints_are_rejected(workspace, tmp_path):
    with pytest.raises(CheckpointError, match="digest"):
        open_run(workspace / "run", data=workspace / "text")
    with pytest.raises(UsageError, match="best, last"):
        open_run(workspace / "run", "first")
    assert open_run(workspace / "run", "last").update >= open_run(workspace / "run").update
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "settings.yaml").write_bytes((workspace / "run" / "settings.yaml").read_bytes())
    for which, message in (("best", "the run has no checkpoint"), ("last", "last needs 1 checkpoints; there are 0")):
        with pytest.raises(CheckpointError, match=message):
            open_run(fresh, which)


def test_damaged_weights_are_rejected(workspace, tmp_path):
    copy = tmp_path / "copy"
    for path in (workspace / "run").rglob("*"):
        target = copy / path.relative_to(workspace / "run")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            target.write_bytes(path.read_bytes())
    for weights in copy.rglob("model.safetensors"):
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    result = invoke("evaluate", copy)
    assert result.exit_code == 1
    assert "model.safetensors" in result.stderr


@pytest.mark.usefixtures("without_drawing")
def test_demo_runs_twice_and_rejects_another_seed(tmp_path, monkeypatch):
    monkeypatch.setattr("structattn.cli.demo.EXTRACTION_STRINGS", 6)
    monkeypatch.setattr("structattn.extraction.pipeline.MAX_ROUNDS", 1)
    folder = tmp_path / "demo"
    for _ in range(2):
        output = succeed("demo", "-o", folder, "--strings", 20).output
        assert "stack-transformer" in output
        assert output.count("│ test, longer than 80 │") == 2
        assert 'the bound of "test, longer than 80" is given the length' in " ".join(output.split())
    assert (folder / "report" / "index.html").read_text().count("<svg") >= 4
    result = invoke("demo", "-o", folder, "--strings", 20, "--seed", 2)
    assert result.exit_code == 2
    assert "--seed 1" in result.stderr


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_a_full_disk_is_reported_with_the_file(workspace, tmp_path, file_size_limit, command):
    output = {"evaluate": workspace / "run", "report": tmp_path / "report"}[command]
    with file_size_limit(100):
        result = invoke(command, workspace / "run", *(["-o", output] if command == "report" else []))
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"structattn: {output}/")
    assert line.endswith(": File too large; free some disk space and run the same command again")


@pytest.mark.parametrize("name", ["scores/valid.json", "records/valid.json"])
def test_evaluation_writes_through_no_link_in_a_run(workspace, tmp_path, name):
    """In the folder of a stranger's run it may lead to any file of this user."""
    copy, precious = tmp_path / "run", tmp_path / "precious"
    shutil.copytree(workspace / "run", copy)
    precious.write_text("mine")
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(precious)
    succeed("evaluate", copy, "--split", "valid", "--explain", "0")
    assert precious.read_text() == "mine"
    assert (copy / name).is_file()
    assert not (copy / name).is_symlink()


@pytest.mark.parametrize("name", ["settings.yaml", "events.jsonl", "run.json", "scores/valid.json"])
def test_a_report_does_not_wait_for_a_pipe_in_a_run(workspace, tmp_path, name):
    copy = tmp_path / "run"
    shutil.copytree(workspace / "run", copy)
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).unlink(missing_ok=True)
    os.mkfifo(copy / name)
    result = invoke("report", copy, "-o", tmp_path / "report")
    assert result.exit_code == 1
    assert result.stderr == f"structattn: {copy / name}: cannot be read: is not a regular file\n"
