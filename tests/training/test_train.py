"""Training runs, from settings to a finished run folder."""

import errno
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from structattn.runs.checkpoint import Identity, read_checkpoint
from structattn.runs.folder import RunFolder
from structattn.settings.run import load_settings, resolve_settings
from structattn.settings.training import Budget
from structattn.support.errors import CheckpointError, DataError, SettingsError, StructattnError
from structattn.support.files import sha256_of_file
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary
from structattn.training import loop
from structattn.training.run_training import train

LINES = ["the cat sat", "the dog ran", "a cat ran", "", "the dog sat on a cat", "a dog", "the cat", "dog ran"]


@pytest.fixture
def text(tmp_path):
    """Prepare the lines as sentences or as a stream, from a source file that tests can modify."""

    def prepare(kind="sentences"):
        source = tmp_path / "text.txt"
        source.write_text("\n".join(LINES))
        words = sorted({word for line in LINES for word in line.split()})
        vocabulary = Vocabulary.from_symbols(words)
        ids = [np.array([vocabulary.id_of[word] for word in line.split()], dtype=np.int32) for line in LINES]
        write_prepared(
            tmp_path / kind,
            kind=kind,
            vocabulary=vocabulary,
            tokenizer={"level": "word"},
            sources=[{"path": "../text.txt", "sha256": sha256_of_file(source), "split": "train"}],
            splits={"train": ids, "valid": ids[:3]},
        )
        return tmp_path / kind

    return prepare


def settings_for(data, *changes):
    tree = {
        "task": "language_modeling",
        "data": str(data),
        "model": {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": "1"},
        "training": {"max_updates": 6, "num_threads": 1, "batches": {"kind": "tokens", "max_tokens": 20}},
    }
    return resolve_settings(tree, changes)


@pytest.fixture
def with_bf16_instructions(monkeypatch):
    """Let processors without bfloat16 instructions train in it, which is slow but correct."""
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: None)


@pytest.fixture
def without_bf16_instructions(monkeypatch):
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: "Old CPU has no bfloat16 instructions")


STREAM = "training.batches={kind: stream, sequence_length: 5, batch_size: 2}"


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sentences", []),
        ("sentences", ["training.loss=token_mean", "training.gradient_accumulation_steps=2"]),
        ("sentences", ["training.precision=bf16", "training.schedule.kind=constant"]),
        ("sentences", ["model.layers=superposition-3", "training.schedule={kind: warmup, warmup_steps: 2}"]),
        (
            "sentences",
            ["model.layers=nondeterministic-2-2-2", "model.tied_embeddings=true", "training.max_grad_norm=null"],
        ),
        ("stream", [STREAM]),
        ("sentences", ["model={kind: lstm, hidden_size: 12}"]),
        (
            "sentences",
            [
                "model={kind: lstm, hidden_size: 9, embedding_size: 5, stack: superposition-4}",
                "training.precision=bf16",
            ],
        ),
        ("stream", ["model={kind: rnn, hidden_size: 12, stack: stratified-4}", STREAM]),
        ("sentences", ["model={kind: lstm, hidden_size: 8, stack: nondeterministic-2-2-2}"]),
    ],
)
def test_run_learns_and_is_reproducible(text, tmp_path, with_bf16_instructions, kind, changes):
    faster = [
        "training.max_updates=40",
        "training.optimizer.learning_rate=0.01",
        "training.early_stopping_patience=null",
    ]
    settings = settings_for(text(kind), *faster, *changes)
    summary = train(settings, tmp_path / "first")
    assert (summary.reason, summary.update, summary.resumed_from) == ("updates", 40, None)
    validations = [json.loads(line) for line in (tmp_path / "first/events.jsonl").read_text().splitlines()]
    scores = [event["cross_entropy"] for event in validations if event["event"] == "validation"]
    assert summary.best_cross_entropy == min(scores) < scores[0]
    train(settings, tmp_path / "second")
    for path in ("events.jsonl", "best.json", "checkpoints/40/model.safetensors", "checkpoints/40/MANIFEST.json"):
        assert (tmp_path / "first" / path).read_bytes() == (tmp_path / "second" / path).read_bytes()


def test_a_linear_schedule_would_reach_zero_after_the_last_update(text, tmp_path):
    train(settings_for(text(), "training.schedule=linear", "training.optimizer.learning_rate=0.6"), tmp_path / "run")
    events = map(json.loads, (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    rates = [event["learning_rate"] for event in events if event["event"] == "train"]
    assert rates == pytest.approx([0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


def test_the_temperature_of_hard_attention_falls_and_a_resumed_run_is_the_same(text, tmp_path, monkeypatch):
    model = "model.layers=[{attention: hard, noise: false}]"
    settings = settings_for(text(), model, "training.temperature={end: 0.01, updates: 4}", "training.validate_every=3")
    temperatures, step = [], loop.training_step

    def recorded(learner, *rest):
        temperatures.append(learner.model.layers.blocks[0].attention.layer.selection.temperature)
        return step(learner, *rest)

    monkeypatch.setattr(loop, "training_step", recorded)
    train(settings, tmp_path / "whole")
    assert temperatures == pytest.approx([10**-0.5, 0.1, 10**-1.5, 0.01, 0.01, 0.01])
    train(settings, tmp_path / "parts", pause_after=Budget(3, "updates"))
    train(settings, tmp_path / "parts", resume=True)
    weights = "checkpoints/6/model.safetensors"
    assert (tmp_path / "parts" / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()


def test_different_seed_gives_a_different_event_log(text, tmp_path):
    data = text()
    events = set()
    for seed in (1, 2):
        train(settings_for(data, f"seed={seed}"), str(tmp_path / str(seed)))  # a path may be a string
        events.add((tmp_path / str(seed) / "events.jsonl").read_bytes())
    assert len(events) == 2


def test_bf16_without_instructions_is_refused_before_any_file_is_created(text, tmp_path, without_bf16_instructions):
    data = text()
    with pytest.raises(SettingsError, match="precision=bf16: Old CPU has no bfloat16 instructions"):
        train(settings_for(data, "training.precision=bf16"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(settings_for(data), tmp_path / "run")


def test_resuming_in_bf16_without_instructions_is_refused(text, tmp_path, monkeypatch, with_bf16_instructions):
    settings = settings_for(text(), "training.precision=bf16")
    train(settings, tmp_path / "run", pause_after=Budget(1, "updates"))
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: "Old CPU has no bfloat16 instructions")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(SettingsError, match="precision=bf16: Old CPU"):
        train(settings, tmp_path / "run", resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_finished_bf16_run_can_be_resumed_anywhere(text, tmp_path, monkeypatch, with_bf16_instructions):
    settings = settings_for(text(), "training.precision=bf16")
    ended = train(settings, tmp_path / "run")
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: "Old CPU has no bfloat16 instructions")
    assert train(settings, tmp_path / "run", resume="auto").update == ended.update


def test_contents_of_the_run_folder(text, tmp_path):
    settings = settings_for(text(), "training.max_epochs=2")
    summary = train(settings, tmp_path / "run")
    run = tmp_path / "run"
    assert load_settings(run / "settings.yaml") == settings
    card = json.loads((run / "run.json").read_text())
    identity = Identity(card["settings_digest"], card["data"]["digest"])
    state = read_checkpoint(run / "checkpoints" / str(summary.update), identity)
    assert sum(tensor.numel() for tensor in state.weights.values()) == card["parameters"]
    assert card["hardware"]["threads"] == 1
    assert isinstance(card["hardware"]["processor"], str)
    assert card["hardware"]["processor"]
    assert card["environment"]["torch"].startswith(torch.__version__.partition("+")[0])
    assert card["result"]["best_update"] == summary.best_update
    events = (run / "events.jsonl").read_text()
    assert "time" not in events
    assert "seconds" not in events
    assert json.loads(events.splitlines()[-1]) == {
        "event": "end",
        "reason": "epochs",
        "update": summary.update,
        "epoch": 2,
        "best_update": summary.best_update,
        "best_cross_entropy": summary.best_cross_entropy,
    }


def test_resuming_a_finished_run_changes_nothing_and_is_logged(text, tmp_path, caplog):
    settings = settings_for(text())
    summary = train(settings, tmp_path / "run")
    before = (tmp_path / "run" / "events.jsonl").read_bytes()
    with caplog.at_level(logging.INFO, logger="structattn"):
        again = train(settings, tmp_path / "run", resume=True)
    assert again.already_finished
    assert (again.reason, again.update, again.best_update) == (summary.reason, summary.update, summary.best_update)
    assert "the run is already finished (updates)" in caplog.text
    assert (tmp_path / "run" / "events.jsonl").read_bytes() == before


def test_new_run_in_the_folder_of_another_run_is_rejected(text, tmp_path):
    settings = settings_for(text())
    train(settings, tmp_path / "run")
    with pytest.raises(StructattnError, match="already contains a run; resume it or choose another folder"):
        train(settings, tmp_path / "run")


def test_settings_that_do_not_fit_the_data_create_no_run(text, tmp_path):
    data = text()
    with pytest.raises(SettingsError, match=r"training\.batches\.kind"):
        train(settings_for(data, STREAM), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert train(settings_for(data), tmp_path / "run").update == 6


def test_damaged_data_are_rejected_before_the_run_is_created(text, tmp_path):
    data = text()
    tokens = bytearray((data / "train" / "tokens.bin").read_bytes())
    tokens[0] ^= 1
    (data / "train" / "tokens.bin").write_bytes(tokens)
    with pytest.raises(DataError, match=r"tokens\.bin: changed since it was written"):
        train(settings_for(data), tmp_path / "run")


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("sentences", [], "train example 4 has 7 tokens; the model has 6 learned positions"),
        (
            "stream",
            ["training.batches={kind: stream, sequence_length: 9, batch_size: 2}"],
            "training.batches.sequence_length is 9; the model has 6 learned positions",
        ),
    ],
)
def test_too_few_positions_are_rejected_before_the_run_is_created(text, tmp_path, kind, changes, message):
    data = text(kind)
    settings = settings_for(data, "model.positions={kind: learned, max_positions: 6}", *changes)
    with pytest.raises(SettingsError, match=rf"model\.positions\.max_positions: {message}"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    enough = settings_for(data, "model.positions={kind: learned, max_positions: 9}", *changes)
    assert train(enough, tmp_path / "run").update == 6


def test_resuming_without_a_run_is_rejected(text, tmp_path):
    with pytest.raises(StructattnError, match="contains no run to resume"):
        train(settings_for(text()), tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_rejected_folder_is_left_unchanged(text, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").touch()
    with pytest.raises(StructattnError, match=r"found 'thesis\.tex' in it"):
        train(settings_for(text()), tmp_path / "thesis")
    assert [entry.name for entry in (tmp_path / "thesis").iterdir()] == ["thesis.tex"]


def test_run_resumes_after_its_data_were_moved(text, tmp_path, unfinished):
    settings, folder = unfinished
    moved = settings.data.with_name("moved")
    settings.data.rename(moved)
    assert train(settings.model_copy(update={"data": moved}), folder, resume=True).update == 6
    assert load_settings(folder / "settings.yaml").data == moved


def test_changed_settings_are_rejected_by_field(text, tmp_path):
    data = text()
    train(settings_for(data), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"training\.max_grad_norm was 5\.0 and is now 1\.0; only overrides"):
        train(settings_for(data, "training.max_grad_norm=1"), tmp_path / "run", resume=True)


@pytest.fixture
def unfinished(text, tmp_path):
    """A run without its end event, so that it has to be resumed."""
    settings = settings_for(text())
    train(settings, tmp_path / "run")
    events = tmp_path / "run" / "events.jsonl"
    events.write_bytes(b"".join(events.read_bytes().splitlines(keepends=True)[:-1]))
    return settings, tmp_path / "run"


def test_run_with_missing_checkpoints_is_not_restarted(unfinished):
    settings, run = unfinished
    before = (run / "events.jsonl").read_bytes()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CheckpointError, match="the checkpoints of the run are missing; cannot resume"):
        train(settings, run, resume=True)
    assert (run / "events.jsonl").read_bytes() == before


def test_resuming_after_the_last_update_writes_the_same_end(unfinished):
    settings, run = unfinished
    summary = train(settings, run, resume=True)
    assert (summary.resumed_from, summary.update, summary.already_finished) == (6, 6, False)
    assert json.loads((run / "events.jsonl").read_text().splitlines()[-1])["event"] == "end"


def test_changed_data_are_rejected_with_both_digests(unfinished, tmp_path):
    settings, run = unfinished
    old = json.loads((run / "run.json").read_text())["data"]["digest"]
    header = tmp_path / "sentences" / "header.json"
    header.write_text(header.read_text() + " ")
    with pytest.raises(CheckpointError, match=rf"digest was {old} and is now {sha256_of_file(header)}"):
        train(settings, run, resume=True)


def test_changed_source_file_is_rejected_with_both_digests(unfinished, tmp_path):
    settings, run = unfinished
    source = tmp_path / "text.txt"
    old = sha256_of_file(source)
    source.write_text("something else")
    with pytest.raises(DataError, match=rf"text.txt: changed .* {old} and is {sha256_of_file(source)}"):
        train(settings, run, resume=True)


def test_different_number_of_threads_is_logged(unfinished, caplog):
    settings, run = unfinished
    card = RunFolder(run).read_card()
    card["hardware"]["threads"] = 64
    RunFolder(run).write_card(card)
    train(settings, run, resume=True)
    assert "started with 64 threads and resumes with 1" in caplog.text


def test_full_disk_error_says_what_to_do(text, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    settings = settings_for(text())
    monkeypatch.setattr(Path, "write_bytes", full)
    message = r"checkpoints/\d: cannot write \(No space left on device\); there is no checkpoint yet: .* and resume"
    with pytest.raises(StructattnError, match=message):
        train(settings, tmp_path / "run")
    monkeypatch.undo()
    assert train(settings, tmp_path / "run", resume=True).update == 6
