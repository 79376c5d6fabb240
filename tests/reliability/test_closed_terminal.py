"""A closed terminal stops commands as SIGTERM does, and a killed one leaves nothing in the temporary directory."""

import os
import pty
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from structattn.runs.logs import events_of
from structattn.runs.store import checkpoint_updates

ENDLESS = {"max_epochs": 1_000_000, "checkpoint_every": None, "validate_every": 100_000}


@pytest.fixture
def temporary():
    """A temporary directory whose name is short enough for the addresses of sockets in it; tmp_path's need not be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def start_in_terminal(arguments, temporary):
    """Start the program as the leader of a new terminal; return its id and the terminal's other side."""
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, "-m", "structattn", *map(str, arguments)], environment)
    os.set_blocking(terminal, False)
    return pid, terminal


def wait_until(condition, terminal, seconds=60):
    """Wait, and read what is written to the terminal, whose buffer is small."""
    end = time.monotonic() + seconds
    written = b""
    while not condition():
        assert time.monotonic() < end, written.decode()
        time.sleep(0.02)
        with suppress(OSError):
            written += os.read(terminal, 1 << 16)


def has_trained(runs, count):
    """Return whether so many runs have logged five updates."""
    return sum(path.read_bytes().count(b"\n") > 5 for path in runs.glob("*/events.jsonl")) >= count


def sweep_file(small_settings, folder):
    base = small_settings(**ENDLESS)
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"base": base, "restarts": 2}))
    return path


@pytest.mark.apart
@pytest.mark.quick("sweep")  # whose workers train; a signal to a training is in test_interruption.py
@pytest.mark.parametrize("command", ["train", "sweep"])
def test_a_closed_terminal_ends_training_with_a_checkpoint(small_settings, tmp_path, temporary, command):
    if command == "train":
        path = tmp_path / "settings.yaml"
        path.write_text(yaml.safe_dump(small_settings(**ENDLESS)))
        arguments, runs = ["train", path, "-o", tmp_path / "runs" / "run"], tmp_path / "runs"
    else:
        path = sweep_file(small_settings, tmp_path)
        arguments, runs = ["sweep", path, "-o", tmp_path / "sweep", "--workers", "2"], tmp_path / "sweep" / "runs"
    pid, terminal = start_in_terminal(arguments, temporary)
    wait_until(lambda: has_trained(runs, 1 if command == "train" else 2), terminal)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 75
    for run in runs.iterdir():
        (update,) = checkpoint_updates(run / "checkpoints")
        assert update == events_of(run / "events.jsonl")[-1]["update"]
    assert not list(temporary.glob("pymp-*"))


@pytest.mark.apart
def test_a_killed_sweep_leaves_no_folder_in_the_temporary_directory(small_settings, tmp_path, temporary):
    path = sweep_file(small_settings, tmp_path)
    pid, terminal = start_in_terminal(["sweep", path, "-o", tmp_path / "sweep", "--workers", "2"], temporary)
    wait_until(lambda: has_trained(tmp_path / "sweep" / "runs", 2), terminal)
    assert list(temporary.glob("pymp-*"))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_until(lambda: not list(temporary.glob("pymp-*")), terminal)
    os.close(terminal)
