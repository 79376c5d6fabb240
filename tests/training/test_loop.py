import json
import math

import numpy as np
import pytest
import torch

from structattn.support.errors import NonFiniteError
from structattn.support.json_files import read_json
from structattn.tasks.task import Scores
from structattn.training.loop import train_until_done
from structattn.training.run import StopRequested


def events(run):
    return [json.loads(line) for line in run.events.path.read_text().splitlines()]


def validations(run):
    return [event["update"] for event in events(run) if event["event"] == "validation"]


def checkpoints(run):
    return sorted(int(path.name) for path in run.store.folder.iterdir())


def scored(monkeypatch, run, cross_entropies):
    """Let validation return these scores in turn, then repeat the last one."""
    remaining = list(cross_entropies)

    def validate(model, after_batch):
        score = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return Scores(1, 1, score, math.exp(score))

    object.__setattr__(run.task, "validate", validate)


def test_an_epoch_is_trained_validated_and_saved(tiny_run):
    run = tiny_run(max_epochs=2)
    assert train_until_done(run) == "epochs"
    assert [(event["event"], event["update"], event["epoch"]) for event in events(run)] == [
        *[("train", update, 1) for update in range(1, 7)],
        ("validation", 6, 1),
        *[("train", update, 2) for update in range(7, 13)],
        ("validation", 12, 2),
    ]
    assert checkpoints(run) == [6, 12]


def test_event_fields(tiny_run):
    run = tiny_run(max_updates=1)
    train_until_done(run)
    train, validation = events(run)
    assert list(train) == ["event", "update", "epoch", "loss", "tokens", "learning_rate"]
    assert 0.5 < train["loss"] < 3  # nats per symbol; four outputs
    assert validation["perplexity"] == pytest.approx(math.exp(validation["cross_entropy"]))
    assert validation["cross_entropy_difference"] == pytest.approx(validation["cross_entropy"] - 0.5)


def test_the_last_model_is_always_validated_and_saved(tiny_run):
    run = tiny_run(max_updates=8)
    assert train_until_done(run) == "updates"
    assert validations(run) == [6, 8]
    assert checkpoints(run) == [6, 8]


def test_validate_every_n_updates(tiny_run):
    run = tiny_run(max_updates=10, validate_every=4)
    train_until_done(run)
    assert validations(run) == [4, 8, 10]


def test_validate_every_n_examples(tiny_run):
    run = tiny_run(max_updates=12, max_epochs=None, validate_every={"examples": 4})
    sizes = [len(batch) for epoch in range(3) for batch in run.order.task.training_batches(epoch)]
    ends = np.cumsum(sizes[:12])
    expected = [number for number, (size, end) in enumerate(zip(sizes, ends, strict=False), 1) if end % 4 < size]
    train_until_done(run)
    assert validations(run) == sorted({*expected, 12})


def test_gradient_accumulation_uses_several_batches_per_update(tiny_run):
    run = tiny_run(max_epochs=1, gradient_accumulation_steps=4)
    train_until_done(run)
    trained = [event for event in events(run) if event["event"] == "train"]
    assert len(trained) == 2
    assert sum(event["tokens"] for event in trained) == run.task.train.sequences.num_targets


def test_early_stopping_counts_validations_without_strict_improvement(tiny_run, monkeypatch):
    run = tiny_run(early_stopping_patience=3, validate_every=1)
    scored(monkeypatch, run, [2.0, 1.0, 1.0, 1.5, 1.0])
    assert train_until_done(run) == "early_stopping"
    assert [event["improved"] for event in events(run) if event["event"] == "validation"] == [True, True] + [False] * 3
    assert read_json(run.store.best_path, "best") == {"update": 2, "score": 1.0}


def test_best_checkpoint_is_kept_beyond_the_newest(tiny_run, monkeypatch):
    run = tiny_run(max_updates=6, validate_every=1, early_stopping_patience=None)
    scored(monkeypatch, run, [2.0, 1.0, 3.0])
    train_until_done(run)
    assert checkpoints(run) == [2, 5, 6]


def test_the_plateau_schedule_lowers_the_rate_of_the_next_update(tiny_run, monkeypatch):
    run = tiny_run(
        max_updates=4,
        validate_every=1,
        schedule={"kind": "plateau", "factor": 0.5, "patience": 0},
        early_stopping_patience=None,
    )
    scored(monkeypatch, run, [1.0])
    train_until_done(run)
    assert [event["learning_rate"] for event in events(run) if event["event"] == "train"] == [
        0.001,
        0.001,
        5e-4,
        2.5e-4,
    ]


def test_time_limit_ends_the_run_normally(tiny_run):
    run = tiny_run(max_minutes=1e-9)
    assert train_until_done(run) == "time"
    assert run.progress.update == 0


def test_checkpoints_between_validations(tiny_run):
    run = tiny_run(max_epochs=1, checkpoint_every=2, keep_checkpoints=9)
    train_until_done(run)
    assert checkpoints(run) == [2, 4, 6]


def test_non_finite_validation_score_ends_the_run(tiny_run, monkeypatch):
    run = tiny_run()
    scored(monkeypatch, run, [math.nan])
    with pytest.raises(NonFiniteError, match="validation after update 6 is not finite"):
        train_until_done(run)
    assert checkpoints(run) == []


def test_a_perplexity_that_overflows_ends_the_run(tiny_run):
    run = tiny_run()
    object.__setattr__(run.task, "validate", lambda *_: Scores(1, 1, 6744.8, math.inf))
    with pytest.raises(NonFiniteError, match=r"update 6's perplexity overflows: cross-entropy 6744\.8"):
        train_until_done(run)


def test_a_run_without_time_validates_and_saves_its_initial_model(tiny_run):
    run = tiny_run(max_minutes=1e-12)
    assert train_until_done(run) == "time"
    assert validations(run) == checkpoints(run) == [0]


def test_signal_during_validation_keeps_the_previous_update(tiny_run):
    run = tiny_run()
    run.stop.check = lambda: stop(run)

    def stop(run):
        if run.progress.update == 6:
            raise StopRequested("SIGTERM")

    with pytest.raises(StopRequested):
        train_until_done(run)
    assert (run.progress.update, run.progress.last_validation) == (6, 0)
    assert validations(run) == []


def test_validation_preserves_training_mode_and_generators(tiny_run):
    run = tiny_run()
    before = torch.get_rng_state()
    run.task.validate(run.learner.model, lambda: None)
    assert torch.equal(torch.get_rng_state(), before)
    assert run.learner.model.training
    assert run.learner.model.training
