"""Processes that train one run together: the same losses as one process, and the same promises about interruptions."""

import json

import pytest

LOSS_TOLERANCE = 1e-5  # relative; sums over the batches of an update have another order


def finish_together(starter, settings, folder, size=2):
    exits = [starter.wait(pid) for pid in starter.start_together(settings, folder, size)]
    assert exits == [0] * size, starter.log.read_text()
    return folder


def events_of_run(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def assert_same_events(run, expected):
    found, wanted = events_of_run(run), events_of_run(expected)
    assert [event.pop("event") for event in found] == [event.pop("event") for event in wanted]
    assert [event.pop("reason", None) for event in found] == [event.pop("reason", None) for event in wanted]
    for event, other in zip(found, wanted, strict=True):
        assert event == pytest.approx(other, rel=LOSS_TOLERANCE)


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
