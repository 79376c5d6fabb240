"""Two GPUs that train one run together, their gradients summed by NCCL: the losses of one GPU, and exact resume."""

import json
import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
    pytest.mark.parametrize("strategy", ["ddp", "fsdp"]),
]
LOSS_TOLERANCE = 1e-4  # relative; products on a GPU and sums over the batches of an update have another order
LAYERS = "1.superposition-3.nondeterministic-2-2-3.stack_pointer.1"


def settings_of(small_settings, **training):
    model = {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": LAYERS, "dropout": 0.0}
    return small_settings(model, gradient_accumulation_steps=2, **training)


def start(settings, folder):
    """The process of ``structattn train`` in the folder ``folder / "run"``."""
    folder.mkdir(exist_ok=True)
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    command = [
        sys.executable,
        "-m",
        "structattn",
        "train",
        str(folder / "settings.yaml"),
        "--output",
        str(folder / "run"),
    ]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finish(settings, folder):
    process = start(settings, folder)
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    return folder / "run" / "events.jsonl"


def events_of(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_two_gpus_log_the_events_of_one(small_settings, tmp_path, strategy):
    one = finish(settings_of(small_settings), tmp_path / "one")
    two = finish(settings_of(small_settings, devices=2, strategy=strategy), tmp_path / "two")
    for event, other in zip(events_of(two), events_of(one), strict=True):
        assert event.keys() == other.keys()
        for name, value in other.items():
            assert event[name] == (pytest.approx(value, rel=LOSS_TOLERANCE) if isinstance(value, float) else value)


def test_a_stopped_run_resumes_as_if_undisturbed(small_settings, tmp_path, strategy):
    settings = settings_of(small_settings, devices=2, strategy=strategy)
    undisturbed = finish(settings, tmp_path / "undisturbed")
    process, log = start(settings, tmp_path / "stopped"), tmp_path / "stopped" / "run" / "events.jsonl"
    while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 3):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 75
    assert finish(settings, tmp_path / "stopped").read_bytes() == undisturbed.read_bytes()
