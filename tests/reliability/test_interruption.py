"""A run that is killed or stopped at any time and resumed gives the same result as an uninterrupted run."""

import json
import os
import random
import shutil
import signal
import time

import pytest

from structattn.runs.store import checkpoint_updates
from structattn.tasks.parsing.prepare import prepare_trees
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings

MECHANISMS = [
    "1",
    "1.superposition-3.1",
    "nondeterministic-2-2-3.1",
    {"kind": "lstm", "hidden_size": 8},
    {"kind": "rnn", "hidden_size": 8, "stack": "stratified-3"},
    {"kind": "lstm", "hidden_size": 8, "stack": "nondeterministic-2-2-3"},
    {
        "kind": "rnn",
        "hidden_size": 8,
        "num_layers": 2,
        "stack": "superposition-3",
        "join_reading": True,
        "dropout": 0.1,
    },
]


def check_killed_run(starter, settings, outcome, tmp_path, kills):
    """A run that is killed and started again ``kills`` times at random moments equals an undisturbed one."""
    began = time.monotonic()
    starter.finish(settings, tmp_path / "undisturbed")
    duration = time.monotonic() - began
    hits = 0
    while not hits:  # a machine that became faster meanwhile may finish the run before the first kill
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        duration *= 0.6
        hits = kill_at_random_moments(starter, settings, tmp_path / "killed", duration, kills)
    starter.finish(settings, tmp_path / "killed")
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "undisturbed")


def kill_at_random_moments(starter, settings, folder, duration, kills):
    """Start and kill a run ``kills`` times; return how many kills hit the running process."""
    generator, hits = random.Random(kills), 0
    for _ in range(kills):
        pid = starter.start(settings, folder)
        time.sleep(generator.uniform(0, duration))
        os.kill(pid, signal.SIGKILL)  # the process was not waited for yet, so its id cannot have been reused
        hits += starter.wait(pid) == -signal.SIGKILL
    return hits


@pytest.mark.quick("3-1.superposition-3.1", "3-{'kind': 'lstm', 'hidden_size': 8, 'stack': 'nondeterministic-2-2-3'}")
@pytest.mark.parametrize("model", MECHANISMS, ids=str)
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_and_resumed_run_equals_an_uninterrupted_run(starter, small_settings, outcome, tmp_path, model, kills):
    check_killed_run(starter, small_settings(model, max_epochs=4), outcome, tmp_path, kills)


def test_killed_and_resumed_run_with_tree_regularization(starter, small_settings, outcome, tmp_path):
    """The loss is added in every third update, whichever process makes it."""
    words = (" ".join(f"(N {(7 * n + k) % 5})" for k in range(3 + n % 4)) for n in range(60))
    (tmp_path / "trees").write_text("".join(f"(S (NP {some}) (VP (V is) (N so)))\n" for some in words))
    files = {"train": tmp_path / "trees", "valid": tmp_path / "trees"}
    prepare_trees(tmp_path / "data", files, tokenizer=TokenizerSettings("word", joint=False), layout="sentences")
    settings = small_settings(max_epochs=4, tree_regularization={"every": 3, "share": 0.5})
    settings |= {"task": "language_modeling", "data": str(tmp_path / "data")}
    check_killed_run(starter, settings, outcome, tmp_path, kills=5)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_run_stopped_by_a_signal_saves_and_resumes(starter, small_settings, finished_run, outcome, tmp_path, name):
    settings = small_settings(
        checkpoint_every=None, gradient_accumulation_steps=2, schedule={"kind": "warmup", "warmup_steps": 5}
    )
    folder, exits = tmp_path / "stopped", []
    for lines in (3, 9):
        pid = starter.start(settings, folder)
        wait_for_lines(folder / "events.jsonl", lines)
        os.kill(pid, getattr(signal, name))
        exits.append(starter.wait(pid))
    assert exits == [75, 75], starter.log.read_text()
    assert f"{name} after update" in starter.log.read_text()
    starter.finish(settings, folder)
    undisturbed = finished_run(settings)
    assert outcome(folder) == outcome(undisturbed)
    kept = [sorted(checkpoint_updates(each / "checkpoints")) for each in (folder, undisturbed)]
    assert kept[0] == kept[1], "the kept checkpoints must not depend on interruptions"


def wait_for_lines(path, count):
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        time.sleep(0.001)


def test_resuming_a_finished_run_changes_no_file(starter, small_settings, tmp_path):
    settings = small_settings()
    starter.finish(settings, tmp_path / "run")
    before = contents(tmp_path / "run")
    starter.finish(settings, tmp_path / "run")
    assert "already_finished=True" in starter.log.read_text().splitlines()[-1]
    assert contents(tmp_path / "run") == before


def contents(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_an_extension_killed_at_any_file_operation(starter, small_settings, finished_run, outcome, tmp_path, step):
    """Killed once between its first file operation and its end, and started again, it is one trained through."""
    shorter, longer = small_settings(max_epochs=1), small_settings(max_epochs=2)
    through, kills, moment = outcome(finished_run(longer)), 0, 1
    while True:
        folder = tmp_path / str(moment)
        shutil.copytree(finished_run(shorter), folder)
        extend = {"limits": {"max_epochs": 2}}
        if starter.wait(starter.start(shorter, folder, die_at=moment, **extend)) != -signal.SIGKILL:
            break
        kills += 1
        assert starter.wait(starter.start(shorter, folder, **extend)) == 0, starter.log.read_text()
        extended = outcome(folder)
        assert {name for name in through if extended[name] != through[name]} == {"MANIFEST.json"}
        assert len(json.loads((folder / "run.json").read_text())["extensions"]) == 1
        moment += step
    assert kills > 5


def test_only_one_of_many_simultaneous_starts_trains(starter, small_settings, finished_run, outcome, tmp_path):
    settings, folder = small_settings(max_epochs=6), tmp_path / "run"
    start = time.monotonic() + 0.5
    pids = [starter.start(settings, folder, start_at=start, resume=False) for _ in range(6)]
    exits = sorted(starter.wait(pid) for pid in pids)
    assert exits == [0] + [1] * 5
    refusals = [line for line in starter.log.read_text().splitlines() if str(folder) in line and "Error" in line]
    assert len(refusals) == 5
    assert all("already running in process" in line or "already contains a run" in line for line in refusals)
    assert outcome(folder) == outcome(finished_run(settings))


def test_lock_is_released_when_its_process_dies(starter, small_settings, tmp_path):
    settings, folder = small_settings(max_epochs=8), tmp_path / "run"
    pid = starter.start(settings, folder)
    wait_for_lines(folder / "events.jsonl", 1)
    os.kill(pid, signal.SIGKILL)
    starter.wait(pid)
    assert (folder / "lock").read_text() == f"{pid}\n"
    starter.finish(settings, folder)


@pytest.fixture(scope="session")
def out_of_vocabulary_data(tmp_path_factory):
    """Sentence pairs in which most words are out of vocabulary."""
    folder, generator = tmp_path_factory.mktemp("words"), random.Random(1)
    lines = [
        " ".join("".join(generator.choices("abc", k=3)) for _ in range(generator.randint(1, 5))) for _ in range(80)
    ]
    for name, text in (("source", lines), ("target", [line.upper() for line in lines])):
        (folder / name).write_text("".join(line + "\n" for line in text))
    files = (folder / "source", folder / "target")
    prepare_parallel(
        folder / "data", {"train": files, "valid": files}, tokenizer=TokenizerSettings("word", threshold=12)
    )
    return folder / "data"


def test_killed_character_model_equals_an_uninterrupted_run(starter, out_of_vocabulary_data, outcome, tmp_path):
    model = {
        "kind": "encoder_decoder",
        **{"d_model": 8, "d_ff": 8, "num_heads": 2, "dropout": 0.2},
        "encoder": {"layers": 1, "embedding": {"kind": "c2w", "words": "rare", "coupled": True}},
        "decoder": {"layers": 1, "spelling": {"character_embedding_size": 4, "num_layers": 2}},
    }
    training = {
        "batches": {"kind": "pairs", "max_tokens": 60},
        "max_epochs": 2,
        "checkpoint_every": 5,
        "num_threads": 1,
    }
    settings = {"task": "translation", "data": str(out_of_vocabulary_data), "model": model, "training": training}
    check_killed_run(starter, settings, outcome, tmp_path, kills=3)
