"""A run that is paused after epochs or updates and resumed is one trained through; what is interrupted is saved."""

import json
import os
import signal

import pytest

from structattn.runs.folder import RunFolder
from structattn.runs.store import checkpoint_updates
from structattn.settings.training import Budget
from structattn.support.errors import Interrupted
from structattn.training import loop
from structattn.training.distributed import World
from structattn.training.run_training import train


@pytest.fixture
def settings_for(small_settings):
    return lambda **training: small_settings(**{"max_epochs": 3, **training})


def contents(run_dir):
    """Return every file that must not depend on pauses."""
    files = (path for path in run_dir.rglob("*") if path.is_file())
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in files
        if path.name not in ("timing.jsonl", "run.json", "lock")
    }


CASES = {
    "at a validation": ({}, [Budget(1, "epochs"), Budget(2, "epochs")], [4, 8]),
    "between validations": ({"validate_every": 3}, [Budget(1, "epochs"), Budget(7, "updates")], [4, 7]),
    "schedule with an end": ({"schedule": "cosine", "validate_every": 2}, [Budget(4, "updates")], [4]),
    "accumulation": ({"gradient_accumulation_steps": 3}, [Budget(1, "epochs"), Budget(3, "updates")], [2, 3]),
}


@pytest.mark.parametrize(("training", "pauses", "updates"), CASES.values(), ids=CASES)
def test_a_paused_run_is_one_trained_through(settings_for, tmp_path, training, pauses, updates):
    settings, paused = settings_for(**training), tmp_path / "paused"
    for budget, update in zip(pauses, updates, strict=True):
        for _ in range(2):  # pausing where it is paused changes nothing
            summary = train(settings, paused, resume="auto", pause_after=budget)
            assert (summary.reason, summary.update) == ("paused", update)
            assert max(checkpoint_updates(paused / "checkpoints")) == update
            assert RunFolder(paused).end_event() is None
    assert train(settings, paused, resume=True).reason == "epochs"
    train(settings, tmp_path / "through")
    assert contents(paused) == contents(tmp_path / "through")


def test_a_pause_beyond_the_end_is_none(settings_for, tmp_path):
    summary = train(settings_for(max_epochs=2), tmp_path / "run", pause_after=Budget(2, "epochs"))
    assert (summary.reason, summary.update) == ("epochs", 8)
    assert train(None, tmp_path / "run", resume=True, pause_after=Budget(1, "epochs")).already_finished


def test_the_validation_at_the_pause_is_logged(settings_for, tmp_path):
    train(settings_for(), tmp_path / "run", pause_after=Budget(1, "epochs"))
    last = json.loads((tmp_path / "run/events.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["update"], last["epoch"]) == ("validation", 4, 1)


@pytest.mark.slow
def test_processes_pause_together(settings_for, tmp_path):
    settings = settings_for(devices=2, gradient_accumulation_steps=2)
    summary = train(settings, tmp_path / "run", pause_after=Budget(1, "epochs"))
    assert (summary.reason, summary.update) == ("paused", 2)
    assert train(settings, tmp_path / "run", resume=True).reason == "epochs"


def test_processes_that_are_interrupted_wait_for_the_checkpoint(small_settings, tmp_path, monkeypatch):
    """The end of one of them ends the others within seconds, also the one that saves."""

    def step(learner, task, update):
        if update.number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return training_step(learner, task, update)

    saved, training_step = [], loop.training_step
    monkeypatch.setattr(loop, "training_step", step)
    monkeypatch.setattr(World, "barrier", lambda world: saved.append(checkpoint_updates(tmp_path / "checkpoints")))
    with pytest.raises(Interrupted, match="SIGTERM after update 3; a checkpoint was saved"):
        train(small_settings(), tmp_path)
    assert saved[-1][-1] == 3
