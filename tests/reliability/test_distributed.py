"""Processes that train one run together: the same losses as one process, and the same promises about interruptions."""

import json
import os
import random
import signal
import time

import numpy as np
import pytest

from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary
from structattn.training.run_training import train

LOSS_TOLERANCE = 1e-5  # relative; sums over the batches of an update have another order


def finish_together(starter, settings, folder, size=2):
    exits = [starter.wait(pid) for pid in starter.start_together(settings, folder, size)]
    assert exits == [0] * size, starter.log.read_text()
    return folder


def events_of_run(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def assert_same_events(run, expected):
    for event, other in zip(events_of_run(run), events_of_run(expected), strict=True):
        assert event.keys() == other.keys()
        for name, value in other.items():
            assert event[name] == (pytest.approx(value, rel=LOSS_TOLERANCE) if isinstance(value, float) else value)


def without_dropout(small_settings, layers, **training):
    model = {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": layers, "dropout": 0.0}
    return small_settings(model, gradient_accumulation_steps=2, **training)


@pytest.mark.parametrize("updates", [12, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("strategy", "loss"), [("ddp", "sequence_sum"), ("fsdp", "token_mean")])
def test_two_processes_log_the_events_of_one(starter, finished_run, small_settings, tmp_path, strategy, loss, updates):
    """The epochs have an odd number of batches, so the last update of each has one for process 0 alone."""
    settings = without_dropout(small_settings, "1.superposition-3.1", loss=loss, max_epochs=None, max_updates=updates)
    together = {**settings, "training": settings["training"] | {"strategy": strategy}}
    assert_same_events(finish_together(starter, together, tmp_path / "run"), finished_run(settings))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "optimizer"),
    [("ddp", "muon"), ("ddp", "adafactor"), ("ddp", "sgd"), ("fsdp", "sgd"), ("ddp", "rmsprop"), ("fsdp", "rmsprop")],
)
def test_every_optimizer(starter, small_settings, outcome, tmp_path, strategy, optimizer):
    """Two processes log the events of one, and go on after an interruption as if nothing had happened."""
    settings = without_dropout(small_settings, "1", optimizer=optimizer, strategy=strategy)
    starter.finish(settings, tmp_path / "one")
    assert_same_events(finish_together(starter, settings, tmp_path / "undisturbed"), tmp_path / "one")
    assert stop_one(starter, settings, tmp_path / "stopped", 1, signal.SIGTERM, 3) == [75, 75]
    finish_together(starter, settings, tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "undisturbed")


def stop_one(starter, settings, folder, rank, number, lines):
    """Send a signal to one of two processes after some lines of the log; return the exit statuses of both."""
    pids = starter.start_together(settings, folder)
    wait_for_lines(folder / "events.jsonl", lines)
    os.kill(pids[rank], number)
    return [starter.wait(pid) for pid in pids]


def wait_for_lines(path, count):
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        time.sleep(0.001)


def test_interrupted_processes_stop_together_and_resume_as_if_undisturbed(starter, small_settings, outcome, tmp_path):
    """A signal to one of them stops both after the same update; a death of one ends the other at once."""
    settings = small_settings(gradient_accumulation_steps=2)
    folder = tmp_path / "run"
    assert stop_one(starter, settings, folder, 1, signal.SIGTERM, 3) == [75, 75]
    assert starter.log.read_text().count("SIGTERM after update") == 1
    assert starter.log.read_text().count("ReportedError") == 1
    assert stop_one(starter, settings, folder, 0, signal.SIGKILL, 7) == [-signal.SIGKILL, 1]
    assert starter.log.read_text().count("LostProcessError") == 1
    finish_together(starter, settings, folder)
    assert outcome(folder) == outcome(finish_together(starter, settings, tmp_path / "undisturbed"))


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_an_extended_run_is_one_trained_through(starter, small_settings, outcome, tmp_path, strategy):
    settings = small_settings(gradient_accumulation_steps=2, max_epochs=1, strategy=strategy)
    finish_together(starter, settings, tmp_path / "extended")
    pids = starter.start_together(settings, tmp_path / "extended", limits={"max_epochs": 2})
    assert [starter.wait(pid) for pid in pids] == [0, 0], starter.log.read_text()
    longer = {**settings, "training": settings["training"] | {"max_epochs": 2}}
    through = outcome(finish_together(starter, longer, tmp_path / "through"))
    extended = outcome(tmp_path / "extended")
    assert {name for name in through if extended[name] != through[name]} == {"MANIFEST.json"}  # its settings digest


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "size"), [("ddp", 2), ("ddp", 3), ("fsdp", 2), ("fsdp", 3)])
def test_ten_kills_leave_no_trace(starter, small_settings, outcome, tmp_path, strategy, size):
    settings = small_settings("1.superposition-3.1", gradient_accumulation_steps=3, max_epochs=12, strategy=strategy)
    undisturbed = finish_together(starter, settings, tmp_path / "undisturbed", size)
    generator, hits, folder = random.Random(size), 0, tmp_path / "run"
    lines = len(events_of_run(undisturbed))
    for part in range(10):
        pids = starter.start_together(settings, folder, size)
        wait_for_lines(folder / "events.jsonl", lines * part // 11 + generator.randint(0, 3))
        os.kill(generator.choice(pids), signal.SIGKILL)
        hits += -signal.SIGKILL in [starter.wait(pid) for pid in pids]
    assert hits == 10
    finish_together(starter, settings, folder, size)
    assert outcome(folder) == outcome(undisturbed)


@pytest.mark.slow
def test_resume_with_another_number_goes_on_and_is_logged(starter, small_settings, finished_run, tmp_path):
    settings = without_dropout(small_settings, "1")
    folder = tmp_path / "run"
    assert stop_one(starter, settings, folder, 0, signal.SIGTERM, 5) == [75, 75]
    starter.finish(settings, folder)
    assert "started with 2 processes and resumes with 1" in starter.log.read_text()
    assert_same_events(folder, finished_run(settings))
    starts = [line for line in (folder / "timing.jsonl").read_text().splitlines() if '"start"' in line]
    assert [json.loads(line)["processes"] for line in starts] == [2, 1]


def test_not_finite_loss_is_reported_by_the_process_that_computed_it(starter, small_settings, tmp_path):
    pids = starter.start_together(without_dropout(small_settings, "1"), tmp_path / "run", second={"poison": 3})
    assert [starter.wait(pid) for pid in pids] == [1, 1]
    log = starter.log.read_text()
    assert "NonFiniteError update 3 is not finite: the loss is nan" in log
    assert "first: the output of " in log
    assert log.count("ReportedError") == 1


def test_a_norm_that_overflows_is_reported_by_processes_that_hold_parts_of_the_model(starter, small_settings, tmp_path):
    settings = without_dropout(small_settings, "1", strategy="fsdp", receptive_field_weight=1e25)
    assert [starter.wait(pid) for pid in starter.start_together(settings, tmp_path / "run")] == [1, 1]
    log = starter.log.read_text()
    assert "first: the sum of the squares of the gradients, which are finite;" in log
    assert log.count("ReportedError") == 1


@pytest.mark.slow
def test_processes_of_the_settings_are_those_of_torchrun(starter, small_settings, outcome, tmp_path):
    settings = small_settings(gradient_accumulation_steps=2)
    torchrun = finish_together(starter, settings, tmp_path / "torchrun")
    summary = train(resolve_settings({**settings, "training": settings["training"] | {"devices": 2}}), tmp_path / "run")
    assert summary.reason == "epochs"
    assert outcome(tmp_path / "run") == outcome(torchrun)


def test_fewer_batches_than_processes_are_refused(small_settings, tmp_path, monkeypatch):
    settings = resolve_settings(small_settings(gradient_accumulation_steps=2, devices=3))
    with pytest.raises(SettingsError, match="gradient_accumulation_steps: 2; expected at least 3, the number of"):
        train(settings, tmp_path)
    for name, value in {"RANK": 0, "WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(SettingsError, match="expected at least 4"):
        train(settings, tmp_path)
    assert not any(tmp_path.iterdir())


SMALL = {"d_model": 8, "d_ff": 8, "num_heads": 2, "dropout": 0.0}
SIDES = {"kind": "encoder_decoder", **SMALL, "encoder": {"layers": "1"}, "decoder": {"layers": "1"}}
FORMAL_LANGUAGE = [
    {**SMALL, "layers": "nondeterministic-2-2-3.stack_pointer.1"},
    {"kind": "lstm", "hidden_size": 8, "stack": "nondeterministic-2-2-3"},
    {"kind": "rnn", "hidden_size": 8, "stack": "stratified-3"},
]
TRANSLATION = [
    {"tied_embeddings": "two-way", "training": {"label_smoothing": {}, "select_by": "bleu"}},
    {"training": {"receptive_field_weight": 0.1, "loss": "token_mean"}},
]


def assert_same_with_every_strategy(starter, tmp_path, settings):
    training = settings["training"] | {"gradient_accumulation_steps": 2, "max_updates": 8, "num_threads": 1}
    settings = {**settings, "training": training}
    starter.finish(settings, tmp_path / "one")
    for strategy in ("ddp", "fsdp"):
        together = {**settings, "training": training | {"strategy": strategy}}
        assert_same_events(finish_together(starter, together, tmp_path / strategy), tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("model", FORMAL_LANGUAGE, ids=str)
def test_every_kind_of_causal_model(starter, small_settings, tmp_path, model):
    assert_same_with_every_strategy(starter, tmp_path, small_settings(model))


@pytest.mark.slow
@pytest.mark.parametrize("options", TRANSLATION, ids=str)
def test_translation(starter, parallel_data, tmp_path, options):
    training = {"batches": {"kind": "pairs", "max_tokens": 60}, **options["training"]}
    model = SIDES | {name: value for name, value in options.items() if name != "training"}
    assert_same_with_every_strategy(
        starter, tmp_path, {"task": "translation", "data": str(parallel_data), "model": model, "training": training}
    )


@pytest.mark.slow
def test_translation_that_spells_words(starter, names, tmp_path):
    names.prepare(tmp_path)
    assert_same_with_every_strategy(starter, tmp_path, names.tree(tmp_path / "data"))


TRANSFORMERS = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_layers": 2, "dropout": 0.0, "stack": "stack_pointer"}
TEXT = [
    ("language_modeling", "sentences", SMALL | {"layers": "2"}),
    ("language_modeling", "stream", SMALL | {"layers": "2"}),
    ("masked_language_modeling", "stream", SMALL | {"kind": "masked", "layers": "2"}),
    ("language_modeling", "sentences", TRANSFORMERS | {"kind": "gpt2"}),
    ("masked_language_modeling", "sentences", TRANSFORMERS | {"kind": "roberta"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind", "model"), TEXT, ids=str)
def test_text(starter, tmp_path, task, kind, model):
    generator, sizes = np.random.default_rng(0), {"train": 120, "valid": 20}
    write_prepared(
        tmp_path / "data",
        kind=kind,
        vocabulary=Vocabulary.from_symbols([f"w{number}" for number in range(16)]),
        tokenizer={"level": "word", "min_count": 1, "max_symbols": None},
        splits={
            name: [generator.integers(3, 19, generator.integers(2, 12)).astype(np.int32) for _ in range(size)]
            for name, size in sizes.items()
        },
    )
    batches = {"sentences": {"kind": "tokens", "max_tokens": 60}, "stream": {"kind": "stream", "sequence_length": 8}}
    training = {"batches": batches[kind], "loss": "token_mean"}
    assert_same_with_every_strategy(
        starter, tmp_path, {"task": task, "data": str(tmp_path / "data"), "model": model, "training": training}
    )


@pytest.mark.slow
def test_transduction(starter, tmp_path):
    prepare_transduction(
        tmp_path / "data", "reverse-string", sizes=TransductionSizes(valid_per_length=2, test_per_length=1)
    )
    tree = {"task": "masked_transduction", "data": str(tmp_path / "data"), "model": SMALL | {"kind": "masked"}}
    assert_same_with_every_strategy(starter, tmp_path, tree | {"training": {"max_epochs": None}})
