"""Trackers get each update of a run once, also while the run is interrupted and resumed."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest

from structattn.interop.trackers import log_run, trackers
from structattn.interop.trackers.trackers import Tracker
from structattn.runs.folder import RunFolder
from structattn.runs.logs import EventReader, events_of
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError, DataError, StructattnError, UsageError
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.training.run_training import train

MODEL = {"layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "dyck"
    prepare_formal_language(folder, "dyck", sizes=FormalLanguageSizes(40, 4, 1, (4, 6), (4, 6)))
    return folder


@pytest.fixture
def settings(data):
    def make(**training):
        training = {"max_epochs": None, "max_updates": 20, "validate_every": 4, "checkpoint_every": 4,
                    "batches": {"kind": "tokens", "max_tokens": 60}, **training}  # fmt: skip
        return {"task": "formal_language", "data": str(data), "model": MODEL, "training": training}

    return make


@pytest.fixture
def run_dir(settings, tmp_path):
    train(resolve_settings(settings(max_updates=8)), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def tensorboard():
    pytest.importorskip("tensorboard", reason="tensorboard is not installed; pip install 'structattn[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder):
        """Return tag -> list of (step, value), as the file has them."""
        opened = EventAccumulator(str(folder), purge_orphaned_data=False, size_guidance={"scalars": 0})
        opened.Reload()
        return {tag: [(each.step, each.value) for each in opened.Scalars(tag)] for tag in opened.Tags()["scalars"]}

    return read


def expected_scalars(run_dir):
    """Return tag -> list of (step, value) of the event log."""
    found = defaultdict(list)
    for event in events_of(run_dir / "events.jsonl", ["train", "validation"]):
        for name, value in event.items():
            if name not in ("event", "update", "improved") and value is not None:
                found[f"{event['event']}/{name}"].append((event["update"], pytest.approx(value, rel=1e-6)))
    return dict(found)


def test_tensorboard_has_each_event_once_and_again_after_a_second_replay(run_dir, tensorboard):
    expected = expected_scalars(run_dir)
    assert {"train/loss", "train/learning_rate", "validation/cross_entropy"} <= expected.keys()
    for _ in range(2):
        count = log_run(run_dir, "tensorboard")
        assert count == sum(len(expected[tag]) for tag in ("train/loss", "validation/cross_entropy"))
        assert tensorboard(run_dir / "tensorboard") == expected


def test_a_folder_of_tensorboard_keeps_all_but_the_events_of_the_run(run_dir, settings, tmp_path, tensorboard):
    place = tmp_path / "place"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    for _ in range(2):
        log_run(str(run_dir), "tensorboard", str(place))
    assert tensorboard(place) == expected_scalars(run_dir)
    before = sorted(path.name for path in place.iterdir())
    train(resolve_settings(settings(max_updates=4)), tmp_path / "other")
    with pytest.raises(UsageError, match=r"events\.out\.tfevents\..*: has the events of another run"):
        log_run(tmp_path / "other", "tensorboard", place)
    assert sorted(path.name for path in place.iterdir()) == before
    assert len(before) == 2


def test_runs_beside_the_events_stay(run_dir, tensorboard):
    log_run(run_dir, "tensorboard", run_dir.parent)
    assert tensorboard(run_dir.parent) == expected_scalars(run_dir)


def follow(run_dir, stopped):
    """Follow a run in a thread; returns it with the list of its exceptions."""
    failures = []

    def target():
        try:
            while not RunFolder(run_dir).has_run():
                time.sleep(0.01)
            log_run(run_dir, "tensorboard", stopped, follow=True)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread, failures


def test_a_run_interrupted_five_times_while_it_is_followed_has_each_step_once(
    settings, interrupted, tensorboard, tmp_path, monkeypatch
):
    monkeypatch.setattr(trackers, "SECONDS_BETWEEN_READS", 0.01)
    thread, failures = follow(tmp_path / "run", tmp_path / "board")
    interrupted(resolve_settings(settings()), tmp_path / "run", 3, 7, 10, 14, 19)
    thread.join()
    assert failures == []
    assert tensorboard(tmp_path / "board") == expected_scalars(tmp_path / "run")


@pytest.mark.slow
def test_a_run_killed_five_times_while_it_is_followed_has_each_step_once(settings, tensorboard, tmp_path):
    run_dir, tree = tmp_path / "run", settings(max_updates=200)
    (tmp_path / "settings.json").write_text(json.dumps(tree))
    command = [sys.executable, "-m", "structattn", "train", str(tmp_path / "settings.json"), "--output", str(run_dir)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    thread, failures = follow(run_dir, tmp_path / "board")
    for number in range(5):
        process = subprocess.Popen([*command, *(["--resume"] if number else [])], env=environment)
        wait_for_update(run_dir, 30 * (number + 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, "--resume"], env=environment, check=True)
    thread.join()
    assert failures == []
    assert tensorboard(tmp_path / "board") == expected_scalars(run_dir)
    assert len(expected_scalars(run_dir)["train/loss"]) == 200


def wait_for_update(run_dir, update):
    while not any(event["update"] >= update for event in events_of(run_dir / "events.jsonl", ["train"])):
        time.sleep(0.05)


def test_mlflow_keeps_a_run_and_adds_what_is_new(settings, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed; pip install 'structattn[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run_dir = tmp_path / "run"
    train(resolve_settings(settings(max_updates=8)), run_dir)
    whole = (run_dir / "events.jsonl").read_bytes()
    first = whole.split(b"\n")[0] + b"\n"
    with monkeypatch.context() as in_progress:
        in_progress.setattr(RunFolder, "finished_log", lambda folder: None)
        (run_dir / "events.jsonl").write_bytes(first)
        assert log_run(run_dir, "mlflow", tmp_path / "place") == 1
    (run_dir / "events.jsonl").write_bytes(whole)
    assert log_run(run_dir, "mlflow", tmp_path / "place") == len(events_of(run_dir / "events.jsonl")) - 2  # and the end
    assert log_run(run_dir, "mlflow", tmp_path / "place") == 0
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "place").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("structattn").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["model.d_model"] == "8"
    for tag, values in expected_scalars(run_dir).items():
        history = [(each.step, each.value) for each in client.get_metric_history(found.info.run_id, tag)]
        assert sorted(history) == values


def test_a_run_that_is_moved_and_extended_stays_one_run_of_mlflow(settings, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed; pip install 'structattn[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    train(resolve_settings(settings(max_updates=4)), tmp_path / "run")
    count = log_run(tmp_path / "run", "mlflow", tmp_path / "place")
    (tmp_path / "run").rename(tmp_path / "moved")
    train(None, tmp_path / "moved", resume=True, limits={"max_updates": 8})
    assert log_run(tmp_path / "moved", "mlflow", tmp_path / "place") > 0
    train(resolve_settings(settings(max_updates=4)), tmp_path / "run")
    assert log_run(tmp_path / "run", "mlflow", tmp_path / "place") == count
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "place").as_uri())
    runs = client.search_runs([client.get_experiment_by_name("structattn").experiment_id])
    assert sorted(run.data.tags["structattn.last.train"] for run in runs) == ["4", "8"]


def test_a_run_that_is_moved_and_extended_keeps_its_identifier_in_weights_and_biases(settings, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(trackers, "TRACKERS", {"wandb": lambda run: opened.append(run.identity) or SilentTracker()})
    train(resolve_settings(settings(max_updates=4)), tmp_path / "run")
    log_run(tmp_path / "run", "wandb")
    (tmp_path / "run").rename(tmp_path / "moved")
    train(None, tmp_path / "moved", resume=True, limits={"max_updates": 8})
    log_run(tmp_path / "moved", "wandb")
    assert len(set(opened)) == 1


class SilentTracker(Tracker):
    pass


@pytest.mark.quick("tensorboard")  # the others take seconds to import
@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow", "wandb"])
def test_a_full_disk_is_reported_with_the_path_and_without_a_traceback(run_dir, tmp_path, tracker):
    """In a process of its own: threads and other processes of a library write, too."""
    pytest.importorskip(tracker)
    script = (
        "import resource, sys; from structattn.cli.main import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, resource.RLIM_INFINITY)); "
        "sys.argv[1:] = ['log', *sys.argv[1:]]; main()"
    )
    command = [sys.executable, "-c", script, run_dir, "--to", tracker, "--output", tmp_path / "place"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        environment.pop(name, None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith(f"structattn: {tmp_path / 'place'}")
    assert "File too large" in line


def stored_records(content):
    """Yield the records of a file of Weights & Biases: parts with a header, in blocks of 32 KiB, as in LevelDB."""
    position, record = 7, b""
    while position < len(content):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_weights_and_biases_offline_have_each_step_once(run_dir, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed; pip install 'structattn[wandb]'")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.delenv("WANDB_MODE", raising=False)
    log_run(run_dir, "wandb", tmp_path / "place")
    (path,) = (tmp_path / "place").glob("wandb/offline-run-*/*.wandb")
    found = defaultdict(list)
    for content in stored_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        values = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for tag, value in values.items():
            if not tag.startswith("_"):
                found[tag].append((values["_step"], value))
    assert dict(found) == expected_scalars(run_dir)


def test_the_reader_begins_again_where_a_log_was_cut_back(tmp_path):
    path, lines = tmp_path / "events.jsonl", [f'{{"event": "x", "update": {n}}}\n' for n in range(400)]
    reader = EventReader(path)
    assert reader.read() == []
    path.write_text("".join(lines[:300]) + lines[300][:5])
    assert [each["update"] for each in reader.read()] == list(range(300))
    path.write_text("".join(lines[:200]))
    assert [each["update"] for each in reader.read()] == list(range(200))
    path.write_text("".join(lines[:202]))
    assert [each["update"] for each in reader.read()] == [200, 201]
    path.write_text("".join(lines[200:402]))  # as long, but other bytes
    assert [each["update"] for each in reader.read()] == list(range(200, 400))


def test_a_line_that_is_no_event_is_refused_with_its_number(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"event": "x"}\n')
    reader = EventReader(tmp_path / "events.jsonl")
    reader.read()
    (tmp_path / "events.jsonl").write_text('{"event": "x"}\n[1]\n')
    with pytest.raises(DataError, match=r"events.jsonl:2: holds list"):
        reader.read()


def test_other_folders_and_names_are_refused(run_dir, tmp_path, monkeypatch):
    with pytest.raises(StructattnError, match="is not a run folder"):
        log_run(tmp_path, "tensorboard")
    with pytest.raises(UsageError, match="tracker 'paper' is not one of tensorboard, mlflow, wandb"):
        log_run(run_dir, "paper")
    with pytest.raises(UsageError, match=r"run.json: is a file; expected a folder for what mlflow writes"):
        log_run(run_dir, "mlflow", run_dir / "run.json")
    monkeypatch.setattr("structattn.support.imports.find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"tensorboard is not installed; pip install '(tensorboard>=|structattn\[tensorboard\])"
    ):
        log_run(run_dir, "tensorboard", Path(tmp_path / "board"))


@pytest.mark.parametrize("damage", ["one line without an end", "a hole of a gigabyte behind the end"])
def test_a_changed_log_of_a_finished_run(run_dir, damage):
    """What is not the log that the run card names is refused, and what follows its end is not read."""
    log = run_dir / "events.jsonl"
    if damage.startswith("one line"):
        log.write_bytes(log.read_bytes().replace(b"\n", b""))
        with pytest.raises(CheckpointError, match="have changed"):
            log_run(run_dir, "tensorboard")
    else:
        expected = log_run(run_dir, "tensorboard")
        os.truncate(log, 1 << 30)
        assert log_run(run_dir, "tensorboard") == expected
