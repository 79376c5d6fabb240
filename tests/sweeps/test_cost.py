"""The cost of a trial in the file of trials: that of the whole training, or none."""

import json

import pytest

from structattn.sweeps import worker as work


@pytest.fixture
def one_cell(tree):
    tree["base"]["prepare"]["language"] = "dyck"
    tree["base"]["training"] = {"max_epochs": 2, "early_stopping_patience": None}
    return tree | {"grid": {}}


def costs(stored):
    """Return whether a trial has a cost, by whether it was stopped."""
    lines = map(json.loads, stored.read_text().splitlines())
    return {"stopped" in line: "cpu_seconds" in line for line in lines}


def test_the_cost_of_a_rung_is_not_that_of_the_trials_that_went_on(one_cell, run_here, tmp_path):
    stored = tmp_path / "results.trials.jsonl"
    run_here(one_cell | {"halving": {"after": [1], "keep": 0.5}}, tmp_path / "sweep", stored)
    assert costs(stored) == {True: True, False: False}


def test_a_training_in_other_processes_has_no_cost(one_cell, run_here, monkeypatch, tmp_path):
    train, stored = work.train, tmp_path / "results.trials.jsonl"

    def train_here(settings, *arguments, **options):
        training = settings.training.model_copy(update={"devices": 1})
        return train(settings.model_copy(update={"training": training}), *arguments, **options)

    monkeypatch.setattr(work, "train", train_here)
    one_cell["base"]["training"] |= {"devices": 2, "gradient_accumulation_steps": 2}
    run_here(one_cell | {"restarts": 1}, tmp_path / "sweep", stored)
    assert costs(stored) == {False: False}
