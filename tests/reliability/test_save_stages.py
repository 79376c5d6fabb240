"""There is always an intact checkpoint: runs are killed at their n-th file operation, for every n."""

import json
import signal

import pytest

from structattn.runs.checkpoint import Identity
from structattn.runs.folder import RunFolder, settings_digest
from structattn.runs.store import CheckpointStore
from structattn.settings.run import resolve_settings

STAGES = 80
SAMPLE = range(3, STAGES, 19)  # the full range is marked slow


@pytest.fixture
def reference(small_settings, finished_run):
    settings = small_settings(max_updates=3, validate_every=2, checkpoint_every=1)
    return settings, finished_run(settings)


def store_of(settings, run):
    folder = RunFolder(run)
    identity = Identity(settings_digest(resolve_settings(settings)), folder.read_card()["data"]["digest"])
    return CheckpointStore(folder.checkpoints, identity, 2, folder.best)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stages", [SAMPLE, pytest.param(range(1, STAGES + 1), marks=pytest.mark.slow)])
def test_run_resumes_after_being_killed_at_any_file_operation(starter, reference, outcome, tmp_path, stages):
    settings, undisturbed = reference
    expected, killed = outcome(undisturbed), 0
    for stage in stages:
        run = tmp_path / str(stage)
        killed += starter.wait(starter.start(settings, run, die_at=stage)) == -signal.SIGKILL
        if (run / "events.jsonl").exists() and updates_with_checkpoint(run):
            assert store_of(settings, run).newest() is not None
        starter.finish(settings, run)
        assert outcome(run) == expected, stage
    assert killed == len(stages)


def updates_with_checkpoint(run):
    """Return the events of updates that must have a checkpoint: all but the last."""
    lines = (run / "events.jsonl").read_text().splitlines()
    return [update for update in map(json.loads, lines) if update["event"] == "train"][:-1]


def test_full_disk_preserves_the_last_checkpoint(starter, reference, outcome, tmp_path):
    """Simulate a full disk by a file size limit: a write fails halfway in the same way."""
    settings, undisturbed = reference
    run = tmp_path / "run"
    for limit in (100, 700, 1500, 3000, 10_000):
        pid = starter.start(settings, run, file_limit=limit)
        assert starter.wait(pid) in {0, 1}, starter.log.read_text()
    starter.finish(settings, run)
    assert outcome(run) == outcome(undisturbed)
