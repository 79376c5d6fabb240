"""A run that is extended is the run that had the new limits from the start, or a warning says what differs."""

import errno
import json
import os
import shutil

import pytest

import structattn
from structattn.loading.runs import open_run
from structattn.runs.folder import RunFolder
from structattn.runs.store import checkpoint_updates
from structattn.support.errors import CheckpointError, SettingsError, StructattnError, UsageError
from structattn.training.run_training import train

NO_LIMITS = {"max_epochs": None, "early_stopping_patience": None}


@pytest.fixture
def settings_for(small_settings):
    return lambda **training: small_settings(**(NO_LIMITS | {"schedule": "constant", "keep_checkpoints": 9} | training))


def contents(run_dir):
    """Return what must not depend on extensions: the newest checkpoint, the event log and the choice of the best."""
    folder = RunFolder(run_dir)
    newest = folder.checkpoints / str(max(checkpoint_updates(folder.checkpoints)))
    names = ("model.safetensors", "optimizer.safetensors", "state.json")
    paths = [*(newest / name for name in names), folder.events, folder.best]
    return {path.name: path.read_bytes() for path in paths} | {
        "updates": sorted(checkpoint_updates(folder.checkpoints))
    }


def extensions(run_dir):
    return RunFolder(run_dir).read_card()["extensions"]


SAME = {
    "updates": ({"validate_every": 2}, ["max_updates"], [4, 8, 12]),
    "epochs, validated once each": ({}, ["max_epochs"], [1, 2, 3]),
    "early stopping": ({"validate_every": 1, "max_updates": 60, "optimizer": {"learning_rate": 0.3}},
                       ["early_stopping_patience"], [1, 2, 3]),
    "plateau, accumulation, examples": (
        {"validate_every": {"examples": 20}, "schedule": {"kind": "plateau", "patience": 0},
         "gradient_accumulation_steps": 2},
        ["max_updates"], [4, 8, 12]),
    "muon, wsd": (
        {"validate_every": 2, "optimizer": "muon", "schedule": {"kind": "wsd", "total_steps": 20},
         "early_stopping_patience": None, "checkpoint_every": 1},
        ["max_updates"], [4, 8, 12]),
    "linear with its own end": ({"validate_every": 2, "schedule": {"kind": "linear", "total_steps": 20}},
                                ["max_updates"], [4, 8, 12]),
}  # fmt: skip


@pytest.mark.parametrize(("training", "names", "values"), SAME.values(), ids=SAME)
def test_a_run_extended_twice_is_one_trained_through(settings_for, tmp_path, caplog, training, names, values):
    first, second, last = (dict.fromkeys(names, value) for value in values)
    train(settings_for(**{**training, **first}), tmp_path / "extended")
    for limits in (second, last):
        summary = train(None, tmp_path / "extended", resume=True, limits=limits)
        assert summary.resumed_from is not None
        assert not summary.already_finished
    train(settings_for(**{**training, **last}), tmp_path / "through")
    assert contents(tmp_path / "extended") == contents(tmp_path / "through")
    assert not caplog.records
    assert [each["differences"] for each in extensions(tmp_path / "extended")] == [[], []]
    assert [each["limits"][names[0]] for each in extensions(tmp_path / "extended")] == values[:2]
    assert RunFolder(tmp_path / "extended").read_settings() == RunFolder(tmp_path / "through").read_settings()


DIFFERENT = {
    "no validation point": ({"validate_every": 3}, "update 4 was validated because the run ended there"),
    "examples": ({"validate_every": {"examples": 30}}, "update 4 was validated because the run ended there"),
    "end of an epoch": ({"validate_every": None, "gradient_accumulation_steps": 3}, None),  # two updates an epoch
    "schedule": ({"validate_every": 2, "schedule": "linear"}, "up to update 4 were those of a run of 4 updates, the"),
}


@pytest.mark.parametrize(("training", "message"), DIFFERENT.values(), ids=DIFFERENT)
def test_differences_are_stated_and_recorded(settings_for, tmp_path, caplog, training, message):
    train(settings_for(max_updates=4, **training), tmp_path / "run")
    train(None, tmp_path / "run", resume=True, limits={"max_updates": 6})
    (extension,) = extensions(tmp_path / "run")
    assert (extension["update"], extension["reason"]) == (4, "updates")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * (message is not None)
    if message is not None:
        assert message in caplog.text
        assert message in extension["differences"][0]
    train(settings_for(max_updates=6, **training), tmp_path / "through")
    logs = [(tmp_path / name / "events.jsonl").read_bytes() for name in ("run", "through")]
    assert (logs[0] == logs[1]) == (message is None)


def test_a_patience_that_would_have_ended_the_run_before_is_stated(settings_for, tmp_path, caplog):
    training = {"validate_every": 1, "optimizer": {"learning_rate": 0.3}}
    train(settings_for(max_updates=30, **training), tmp_path / "probe")
    events = [json.loads(line) for line in (tmp_path / "probe/events.jsonl").read_text().splitlines()]
    improved = {event["update"]: event["improved"] for event in events if event["event"] == "validation"}
    end = next(update for update in improved if improved[update] and not improved.get(update - 1, True))
    train(settings_for(max_updates=end, **training), tmp_path / "run")
    assert train(settings_for(early_stopping_patience=1, **training), tmp_path / "new").update < end
    for patience, shown in ((30, 0), (1, 1)):
        limits = {"early_stopping_patience": patience, "max_updates": end + 1}
        train(None, shutil.copytree(tmp_path / "run", tmp_path / str(patience)), resume=True, limits=limits)
        assert len(caplog.records) == shown
    assert "early_stopping_patience=1 would have ended this run before" in caplog.text


def test_validations_after_the_newest_checkpoint_do_not_count(settings_for, tmp_path, caplog):
    """A process that was killed while it saved has logged the last validation, which the extension makes again."""
    training = {"validate_every": 1, "optimizer": {"learning_rate": 0.3}}
    end = train(settings_for(early_stopping_patience=2, max_updates=60, **training), tmp_path / "through").update
    train(settings_for(max_updates=end, **training), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / str(end))
    train(None, tmp_path / "run", resume=True, limits={"early_stopping_patience": 2, "max_updates": 60})
    assert contents(tmp_path / "run") == contents(tmp_path / "through")
    assert extensions(tmp_path / "run")[0]["differences"] == []
    assert not caplog.records


def test_checkpoints_from_before_and_after_belong_to_the_run(settings_for, tmp_path):
    train(settings_for(max_updates=4, validate_every=2), tmp_path / "run")
    train(None, tmp_path / "run", resume=True, limits={"max_updates": 6})
    assert open_run(tmp_path / "run", "last-3").averaged_updates == (6, 4, 2)
    assert structattn.load(tmp_path / "run").settings.training.max_updates == 6
    assert train(None, tmp_path / "run", resume=True).already_finished


def test_an_extension_without_more_to_do_is_refused_and_changes_nothing(settings_for, tmp_path):
    train(settings_for(max_updates=4, early_stopping_patience=50), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    for limits in ({"max_updates": 3}, {"max_epochs": 1}, {"max_minutes": 1e-6, "max_updates": 9}):
        name = next(iter(limits))
        with pytest.raises(SettingsError, match=rf"training\.{name}=.*: .*run has already reached this limit"):
            train(None, tmp_path / "run", resume=True, limits=limits | {"early_stopping_patience": 60})
    assert {path: path.read_bytes() for path in before} == before


def test_only_limits_can_be_changed(settings_for, tmp_path):
    train(settings_for(max_updates=4), tmp_path / "run")
    with pytest.raises(SettingsError, match=r"training\.precision: is not a limit; the limits of a run are max_epochs"):
        train(None, tmp_path / "run", resume=True, limits={"precision": "bf16"})
    changed = settings_for(max_updates=6).model_copy(update={"seed": 2})
    with pytest.raises(CheckpointError, match=r"seed was 1 and is now 2; only overrides of limits"):
        train(changed, tmp_path / "run", resume=True, limits={"max_updates": 6})
    command = rf"structattn train --resume --output {tmp_path / 'run'} training\.max_updates=6`"
    with pytest.raises(
        CheckpointError, match=rf"training\.max_updates was 4 and is now 6; limits are overrides: `{command}"
    ):
        train(settings_for(max_updates=6), tmp_path / "run", resume=True)
    with pytest.raises(SettingsError, match=r"max_updates: expected at least 1"):
        train(None, tmp_path / "run", resume=True, limits={"max_updates": 0})
    with pytest.raises(UsageError, match="only resume can change them"):
        train(settings_for(max_updates=4), tmp_path / "new", limits={"max_updates": 6})
    with pytest.raises(StructattnError, match="contains no run to resume"):
        train(None, tmp_path / "new", resume=True, limits={"max_updates": 6})


def test_an_extension_that_was_interrupted_before_the_settings_changed(settings_for, tmp_path, monkeypatch):
    """It is dropped by a resume with the old limits, and begun once by a second attempt."""
    train(settings_for(max_updates=4, validate_every=3), tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    monkeypatch.setattr(RunFolder, "write_settings", lambda self, settings: 1 / 0)
    for name in ("run", "again"):
        with pytest.raises(ZeroDivisionError):
            train(None, tmp_path / name, resume=True, limits={"max_updates": 6})
    monkeypatch.undo()
    assert train(None, tmp_path / "run", resume=True).update == 4
    assert extensions(tmp_path / "run") == []
    assert train(None, tmp_path / "again", resume=True, limits={"max_updates": 6}).update == 6
    (extension,) = extensions(tmp_path / "again")
    assert extension["reason"] == "updates"
    assert "update 4 was validated because" in extension["differences"][0]
    events = [json.loads(line) for line in (tmp_path / "again/events.jsonl").read_text().splitlines()]
    assert [event["update"] for event in events if event["event"] == "train"] == [1, 2, 3, 4, 5, 6]
    assert [event["update"] for event in events if event["event"] == "end"] == [6]


def test_another_learning_rate_points_to_a_new_run_with_the_weights(settings_for, tmp_path):
    train(settings_for(max_updates=4), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"learning_rate was .*; `train --from .*run` starts a new one with"):
        train(settings_for(max_updates=4, optimizer={"learning_rate": 0.5}), tmp_path / "run", resume=True)


def test_resuming_a_finished_run_on_a_read_only_disk_does_nothing(settings_for, tmp_path, monkeypatch):
    train(settings_for(max_updates=4), tmp_path / "run")

    def read_only(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / "run" / "lock"))

    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    monkeypatch.setattr("structattn.training.run_training.exclusive_lock", read_only)
    monkeypatch.setattr("structattn.training.run_training.create_folder", lambda path: None)
    assert train(None, tmp_path / "run", resume=True).already_finished
    with pytest.raises(OSError, match="Read-only"):
        train(None, tmp_path / "run", resume=True, limits={"max_updates": 6})
