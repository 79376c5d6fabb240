import json
import os
import resource
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from structattn.runs.checkpoint import Identity, LogPrefix, read_checkpoint, tensors_to_bytes
from structattn.runs.store import checkpoint_path, checkpoint_updates
from structattn.support.environment import is_out_of_memory
from structattn.support.errors import CheckpointError
from structattn.support.json_files import read_json
from structattn.training.loop import train_until_done
from structattn.training.run import restore_state, state_of


@pytest.fixture
def trained(tiny_run):
    run = tiny_run(max_epochs=2)
    train_until_done(run)
    return run


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_state_round_trip(trained):
    written, read = state_of(trained), trained.store.newest()
    assert same(written.weights, read.weights)
    assert same(written.optimizer, read.optimizer)
    assert (written.generators, written.progress, written.event_log) == (
        read.generators,
        read.progress,
        read.event_log,
    )


def test_state_is_restored_in_a_new_learner(trained, tiny_learner):
    state, learner = trained.store.newest(), tiny_learner()
    generator = torch.get_rng_state()
    torch.rand(5)
    restore_state(learner, state, trained.store)
    moved = state_of(replace(trained, learner=learner))
    assert same(moved.weights, state.weights)
    assert same(moved.optimizer, state.optimizer)
    assert moved.generators == state.generators
    assert not torch.equal(torch.get_rng_state(), generator)


def test_the_same_state_gives_the_same_bytes(trained, tmp_path):
    state = state_of(trained)
    assert tensors_to_bytes(state.optimizer) == tensors_to_bytes(dict(reversed(state.optimizer.items())))


@pytest.mark.parametrize(("field", "word"), [("settings", "settings"), ("data", "data")])
def test_checkpoint_with_other_settings_or_data_is_rejected(trained, field, word):
    store = replace(trained.store, identity=replace(trained.store.identity, **{field: "another"}))
    with pytest.raises(CheckpointError, match=rf"MANIFEST.json: written with other {word}: .* this run has another"):
        store.newest()


def test_newest_is_none_without_checkpoints(tiny_run):
    assert tiny_run().store.newest() is None


def test_newest_checkpoints_are_kept(tiny_run):
    run = tiny_run(max_epochs=None, max_updates=5, checkpoint_every=1, keep_checkpoints=3)
    train_until_done(run)
    assert sorted(checkpoint_updates(run.store.folder)) == [3, 4, 5]


def test_temporary_checkpoint_is_deleted_at_the_next_save(trained):
    store, state = replace(trained.store, keep=2), state_of(trained)
    shutil.rmtree(store.folder)
    store.clean()
    kept = []
    for update, temporary in [(5, False), (10, False), (12, True), (13, True), (15, False), (20, False), (20, True)]:
        progress = replace(state.progress, update=update, best_update=None, best_score=None)
        store.save(replace(state, progress=progress), temporary)
        kept.append(sorted(checkpoint_updates(store.folder)))
        assert store.newest().progress.update == update
    assert kept == [[5], [5, 10], [5, 10, 12], [5, 10, 13], [10, 15], [15, 20], [15, 20]]


def test_the_best_of_each_kept_checkpoint_is_kept(trained):
    """If the newest checkpoint is damaged, the best checkpoint of the previous one must exist."""
    store, state = replace(trained.store, keep=2), state_of(trained)
    shutil.rmtree(store.folder)
    store.clean()
    for update, best in [(1, 1), (2, 1), (3, 1), (4, 4), (5, 4)]:
        progress = replace(state.progress, update=update, best_update=best)
        store.save(replace(state, progress=progress))
        assert {update, update - 1} & set(checkpoint_updates(store.folder))
        if update == 4:
            assert sorted(checkpoint_updates(store.folder)) == [1, 3, 4]
    assert sorted(checkpoint_updates(store.folder)) == [4, 5]


def test_protected_updates_are_kept(trained):
    store, state = replace(trained.store, keep=2, protected_updates=lambda: [2, 4, 77]), state_of(trained)
    shutil.rmtree(store.folder)
    store.clean()
    for update in range(1, 10):
        if update == 6:
            (store.folder / "4" / "state.json").unlink()  # kept even if it is incomplete
        store.save(replace(state, progress=replace(state.progress, update=update, best_update=None, best_score=None)))
    assert sorted(checkpoint_updates(store.folder)) == [2, 4, 8, 9]


def test_best_checkpoint_is_recorded(trained):
    assert read_json(trained.store.best_path, "best") == {
        "update": trained.progress.best_update,
        "score": trained.progress.best_score,
    }


def test_checkpoint_is_replaced_by_one_of_the_same_update(trained):
    state = state_of(trained)
    trained.store.save(replace(state, event_log=LogPrefix(7, "x")))
    assert trained.store.newest().event_log.length == 7
    assert sorted(path.name for path in trained.store.folder.iterdir()) == ["12", "6"]


@pytest.mark.parametrize("crash", ["before the new one has its name", "before the old one is gone"])
def test_interrupted_replacement_of_a_checkpoint(trained, crash):
    folder = trained.store.folder
    if crash == "before the new one has its name":
        (folder / "12").rename(folder / ".12.old1")
    else:
        shutil.copytree(folder / "12", folder / ".12.old1")
    assert sorted(checkpoint_updates(folder)) == [6, 12]
    assert read_checkpoint(checkpoint_path(folder, 12), Identity("s", "d")).progress.update == 12
    trained.store.clean()
    assert trained.store.newest().progress.update == 12
    assert (folder / "12").exists()
    trained.store.save(state_of(trained))
    assert sorted(path.name for path in folder.iterdir()) == ["12", "6"]


def test_incomplete_checkpoints_are_removed(trained):
    (trained.store.folder / ".18.abcdefgh").mkdir()
    (trained.store.folder / ".18.abcdefgh" / "model.safetensors").write_bytes(b"half")
    (trained.store.folder / ".nfs0001").touch()  # created by the file system
    trained.store.clean()
    assert sorted(path.name for path in trained.store.folder.iterdir()) == [".nfs0001", "12", "6"]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weights", {"output.bias": torch.zeros(5)}, r"model.safetensors: 'output.bias' has shape \(5,\)"),
        ("weights", {"output.bias": torch.zeros(4).double()}, "dtype torch.float64, expected"),
        ("weights", {"other": torch.zeros(1)}, "model.safetensors: 'other' is unknown to the model"),
        ("optimizer", {"output.bias/exp_avg": torch.zeros(5)}, "optimizer.safetensors: 'output.bias/exp_avg' has"),
        ("optimizer", {"other/step": torch.zeros(())}, "optimizer.safetensors: 'other/step' belongs to no parameter"),
        ("optimizer", {"output.bias/more": torch.zeros(())}, "optimizer.safetensors: 'output.bias/more' is unknown"),
        ("generators", {"cpu": "AAAA"}, r"state.json: .*RNG state size"),
        ("generators", {"cpu": "?"}, "state.json: a generator's state is not base64"),
    ],
)
def test_error_for_a_mismatched_state_names_file_and_tensor(trained, name, change, message):
    state = state_of(trained)
    trained.store.save(replace(state, **{name: dict(getattr(state, name)) | change}))
    with pytest.raises(CheckpointError, match=message):
        restore_state(trained.learner, trained.store.newest(), trained.store)


def test_error_names_a_missing_tensor(trained):
    state = state_of(trained)
    weights = {name: tensor for name, tensor in state.weights.items() if name != "output.bias"}
    with pytest.raises(CheckpointError, match=r"model.safetensors: 'output.bias' is missing"):
        restore_state(trained.learner, replace(state, weights=weights), trained.store)


def test_manifest_and_state_must_have_the_same_update(trained):
    folder = trained.store.folder
    manifest = json.loads((folder / "12" / "MANIFEST.json").read_text())
    (folder / "12" / "MANIFEST.json").write_text(json.dumps(manifest | {"update": 11}))
    with pytest.raises(CheckpointError, match=r"12/MANIFEST.json: is for update 11, not for that of its folder"):
        read_checkpoint(folder / "12", Identity("s", "d"))
    (folder / "12").rename(folder / "11")
    with pytest.raises(CheckpointError, match=r"state.json: is for update 12, but its manifest is for 11"):
        read_checkpoint(folder / "11", Identity("s", "d"))


MEBIBYTE = 1 << 20


def serialize_under_a_limit(tensor, headroom):
    """Return whether serializing runs out of memory; called in a child process, whose limit cannot be raised again."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + headroom
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        tensors_to_bytes({"a": tensor})
    except RuntimeError as error:
        return is_out_of_memory(error)
    return False


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads its address space from Linux's /proc")
def test_serializing_without_memory_is_an_error_that_can_be_caught():
    """The library would end the process."""
    tensor = torch.zeros(512 * MEBIBYTE, dtype=torch.uint8)  # copies of it fit no gap that earlier tests have left
    child = os.fork()
    if child == 0:
        status = 99
        signal.alarm(20)  # the library may hang as well
        try:
            status = 0 if serialize_under_a_limit(tensor, 100 * MEBIBYTE) else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_cleaning_removes_the_lock_of_a_complete_checkpoint(trained):
    lock = trained.store.folder / ".5.0123abcd.incomplete.lock"
    lock.touch()
    trained.store.clean()
    assert not lock.exists()
