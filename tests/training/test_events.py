import json

import pytest

from structattn.runs.checkpoint import LogPrefix
from structattn.runs.logs import EventLog, last_event
from structattn.support.errors import CheckpointError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def test_events_after_the_checkpoint_are_truncated(path):
    with EventLog(path) as log:
        log.write("train", update=1)
        prefix = log.prefix
        log.write("train", update=2)
    with EventLog(path, prefix) as log:
        log.write("train", update="other")
    assert [json.loads(line)["update"] for line in path.read_text().splitlines()] == [1, "other"]


def test_the_length_counts_bytes(path):
    with EventLog(path) as log:
        log.write("train", loss=0.1 + 0.2)
        assert log.length == path.stat().st_size


def test_floats_round_trip_exactly(path):
    with EventLog(path) as log:
        log.write("train", loss=0.1 + 0.2)
    assert last_event(path)["loss"] == 0.1 + 0.2


def test_log_shorter_than_in_the_checkpoint_is_rejected(path):
    path.write_text("{}\n")
    with pytest.raises(CheckpointError, match=r"events.jsonl: has 3 bytes, fewer than the 4"):
        EventLog(path, LogPrefix(4))


def test_nan_is_rejected(path):
    with EventLog(path) as log, pytest.raises(ValueError, match="JSON"):
        log.write("train", loss=float("nan"))
    assert path.read_bytes() == b""


@pytest.mark.parametrize("content", [b"", b'{"event": "end"}', b"[1]\n", b"nonsense\n", b"[" * 100_000 + b"\n"])
def test_last_event_is_none_for_an_empty_or_invalid_log(path, content):
    path.write_bytes(content)
    assert last_event(path) is None


def test_last_event_of_a_long_log(path):
    with EventLog(path) as log:
        for update in range(3000):
            log.write("train", update=update, filler="x" * 50)
    assert last_event(path)["update"] == 2999
