import json
import re

import pytest

from structattn.runs import logs as timing_module
from structattn.runs.logs import Timing
from structattn.training.run_training import train


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(timing_module.time, "monotonic", lambda: now[0])
    return now


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def test_training_time_is_summed_over_all_starts(tmp_path, clock):
    path = tmp_path / "timing.jsonl"
    with Timing(path) as timing:
        clock[0] += 60
        timing.record("checkpoint")
        clock[0] += 1000  # not counted: the process was killed before it logged anything
    with path.open("ab") as file:
        file.write(b'{"seconds": 7')  # incomplete line
    with Timing(path) as timing:
        clock[0] += 30
        assert timing.seconds == 90
        timing.record("end")
    assert [line["event"] for line in lines(path)] == ["checkpoint", "end"]


def test_rates_are_logged_every_ten_seconds(tmp_path, clock):
    with Timing(tmp_path / "timing.jsonl") as timing:
        for update in range(1, 61):
            clock[0] += 0.5
            timing.after_update(update, num_tokens=30)
    rates = lines(tmp_path / "timing.jsonl")
    assert [line["update"] for line in rates] == [20, 40, 60]
    assert {(line["updates_per_second"], line["tokens_per_second"]) for line in rates} == {(2.0, 60.0)}


def test_a_run_with_a_limited_time_shows_the_time(small_settings, tmp_path, capsys):
    train(small_settings(max_minutes=5, max_epochs=2), tmp_path / "run")
    shown = capsys.readouterr().err
    assert re.search(r"^training: \d+ updates, 0\.\d of 5 min, .*validation in epoch 2", shown, re.MULTILINE)
    assert re.search(r"training: \d+ of", shown) is None
