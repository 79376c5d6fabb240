import json

import pytest

from structattn.runs.logs import EventLog, last_event
from structattn.support.errors import CheckpointError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def test_what_was_written_after_the_checkpoint_is_cut_off(path):
    with EventLog(path) as log:
        log.write("train", update=1)
        length = log.length
        log.write("train", update=2)
    with EventLog(path, length) as log:
        log.write("train", update="other")
    assert [json.loads(line)["update"] for line in path.read_text().splitlines()] == [1, "other"]


def test_the_length_counts_bytes(path):
    with EventLog(path) as log:
        log.write("train", loss=0.1 + 0.2)
        assert log.length == path.stat().st_size


def test_floats_keep_all_their_digits(path):
    with EventLog(path) as log:
        log.write("train", loss=0.1 + 0.2)
    assert last_event(path)["loss"] == 0.1 + 0.2


def test_a_log_shorter_than_its_checkpoint_says_is_refused(path):
    path.write_text("{}\n")
    with pytest.raises(CheckpointError, match=r"events.jsonl: has 3 bytes, fewer than the 4"):
        EventLog(path, 4)


def test_nan_never_enters_the_log(path):
    with EventLog(path) as log, pytest.raises(ValueError, match="JSON"):
        log.write("train", loss=float("nan"))
    assert path.read_bytes() == b""


@pytest.mark.parametrize("content", [b"", b'{"event": "end"}', b"[1]\n", b"nonsense\n", b"[" * 100_000 + b"\n"])
def test_no_last_event(path, content):
    path.write_bytes(content)
    assert last_event(path) is None


def test_last_event_of_a_long_log(path):
    with EventLog(path) as log:
        for update in range(3000):
            log.write("train", update=update, filler="x" * 50)
    assert last_event(path)["update"] == 2999
