"""After a loss of power every program recovers to what it last reported as saved."""

import contextlib
import itertools
import json
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import pytest

from structattn.cli.report_page import write_report
from structattn.explorer.run_analysis import analyze
from structattn.loading.evaluate import evaluate, is_scored
from structattn.runs.checkpoint import read_checkpoint, update_of
from structattn.runs.folder import RunFolder
from structattn.runs.metadata import TrainingSummary
from structattn.runs.selection import checkpoints_of, mean_weights
from structattn.runs.store import CheckpointStore, write_analysis
from structattn.settings.run import resolve_settings
from structattn.settings.sweep import SweepSettings
from structattn.support.errors import Interrupted
from structattn.sweeps.report import write_sweep_results
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.sweep import run_sweep
from structattn.sweeps.trials import make_trials
from structattn.sweeps.worker import Job, SweepFolder, result_of, run_job
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared
from structattn.training import loop, run_training
from structattn.training.run_training import train

QUICK, FULL = 8, 500  # states of each of the five programs
FEWER = {"results": 100}  # has hardly more in all; with it there are over 2,000


@dataclass
class Program:
    """A recorded program.

    Args:
        packages: the packages whose flushes are judged by this program.
        recording: what it did on the disk.
        check: raises if a state does not hold what was promised, or recovery cannot start.
        recover: recovers completely, and raises if the result is not that of an undisturbed program.
    """

    packages: tuple[str, ...]
    recording: Any
    check: Callable[[Any], None]
    recover: Callable[[Any], None]


def kept_promises(state, kind):
    return [value for name, value in state.promises if name == kind]


def visible(tree):
    """Return the files of a tree whose name and whose folders' names do not begin with a point."""
    return {
        name: content
        for name, content in tree.items()
        if content is not None and not any(part.startswith(".") for part in name.split("/"))
    }


# Training.


def record_training(
    root, new_recorder, small_settings, outcome, kill_before=None, packages=("runs/", "training/assembly.py")
):
    """Record a run that is stopped before a validation and killed between two checkpoints, or killed before syncs."""
    settings = resolve_settings(
        small_settings(max_epochs=None, max_updates=7, checkpoint_every=2, validate_every=3, keep_checkpoints=2)
    )
    run = RunFolder(root / "new" / "run")
    with pytest.MonkeyPatch.context() as patch:
        recorder = new_recorder(root, patch)
        save = CheckpointStore.save

        def save_and_promise(store, state, temporary=False):
            save(store, state, temporary)
            recorder.promise(("saved", state.progress))

        patch.setattr(CheckpointStore, "save", save_and_promise)
        if kill_before is not None:
            recorder.kill_before(kill_before(run))
        else:
            interrupt(patch, {3: lambda: signal.raise_signal(signal.SIGTERM), 5: recorder.kill})
        summary = None
        while summary is None:
            with recorder.process(), contextlib.suppress(Interrupted):
                summary = train(settings, run.path, resume="auto")
        recorder.promise(("finished", None))
    plan, log, expected = run_training.make_plan(run, settings), run.events.read_bytes(), outcome(run.path)

    def check(state):
        saved = kept_promises(state, "saved")[-1:]
        for progress in saved:
            check_saved(run, plan.identity, progress)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_training, "make_plan", lambda *_: plan)
            patch.setattr(run_training, "_train_and_record", lambda resumed, *_: resumed)
            found = train(settings, run.path, resume="auto")
        if isinstance(found, TrainingSummary):
            assert run.read_card()["result"] is not None
            return
        assert not kept_promises(state, "finished")
        for progress in saved:
            assert found.progress.update >= progress.update
        assert run.events.read_bytes() == log[: found.events.length]

    def recover(state):
        check(state)
        train(settings, run.path, resume="auto")
        assert outcome(run.path) == expected

    return Program(packages, recorder.recording, check, recover)


def interrupt(patch, actions):
    """Call each action once, after the update with this number."""
    perform_update = loop.perform_update

    def update_and_act(run):
        perform_update(run)
        actions.pop(run.progress.update, lambda: None)()

    patch.setattr(loop, "perform_update", update_and_act)


def check_saved(run, identity, progress):
    """Check what evaluation finds before the run is resumed."""
    newest = checkpoints_of(run.path, "last")
    assert update_of(newest[0]) >= progress.update
    mean_weights(newest)
    for path in run.checkpoints.iterdir():
        assert path.name.startswith(".") or read_checkpoint(path, identity).progress.update == int(path.name)
    if progress.best_update is not None:
        mean_weights(checkpoints_of(run.path, "best"))
        assert json.loads(run.best.read_text())["score"] <= progress.best_score


# Preparation: strings of a formal language in a new folder, and parallel text.


def record_preparation(root, new_recorder, texts):
    strings, pairs = root / "new" / "strings", root / "another" / "pairs"
    sizes = FormalLanguageSizes(6, 4, 1, (2, 6), (2, 6), 2)

    def prepare(folder):
        if folder == strings:
            prepare_formal_language(folder, "dyck", seed=1, sizes=sizes)
        else:
            prepare_parallel(folder, texts, tokenizer=TokenizerSettings("word", joint=False, threshold=12))

    with pytest.MonkeyPatch.context() as patch:
        recorder = new_recorder(root, patch)
        for folder in (strings, pairs):
            prepare(folder)
            recorder.promise((folder.name, folder))
    expected = {folder: open_prepared(folder).digest for folder in (strings, pairs)}

    def check(state):
        for folder, digest in expected.items():
            if kept_promises(state, folder.name) or folder.exists():
                assert open_prepared(folder).digest == digest

    def recover(state):
        check(state)
        for folder, digest in expected.items():
            if not folder.exists():
                prepare(folder)
            assert open_prepared(folder).digest == digest

    return Program(("text/", "tasks/"), recorder.recording, check, recover)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Files of sentence pairs with rare words."""
    folder, generator = tmp_path_factory.mktemp("texts"), random.Random(1)
    lines = [" ".join("".join(generator.choices("ab", k=3)) for _ in range(3)) for _ in range(30)]
    for name, text in (("source", lines), ("target", [line.upper() for line in lines])):
        (folder / name).write_text("".join(line + "\n" for line in text))
    return dict.fromkeys(("train", "valid"), (folder / "source", folder / "target"))


# Results of a finished run: scores, records and a report.

REPORT = "reports/first/index.html"


def record_results(root, new_recorder, small_settings, parallel_data, save_empty_figure):
    run, translator = root / "run", root / "translator"
    train(resolve_settings(small_settings(max_epochs=None, max_updates=2)), run)
    train(resolve_settings(TRANSLATION | {"data": str(parallel_data)}), translator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", save_empty_figure)
        recorder = new_recorder(root, patch)

        def write(command):
            before = {path for path in root.rglob("*") if path.is_file()}
            command()
            new = {path for path in root.rglob("*") if path.is_file()} - before
            recorder.promise(("written", {path.relative_to(root).as_posix(): path.read_bytes() for path in new}))

        write(lambda: evaluate(run, "valid"))
        write(lambda: analyze(run, "valid", [0]))
        write(lambda: write_analysis(run, "locality", "locality", {"heads": []}))
        write(lambda: write_report([run], (root / REPORT).parent))
        write(lambda: evaluate(translator, "test"))
    *_, last = recorder.recording.states()
    expected = visible(last.tree)

    def check(state):
        found = visible(state.tree)
        if any(name.startswith("reports/first/figures/") for name in found):
            assert REPORT in found  # by which a repetition knows the folder
        if b"is not complete" in found.get(REPORT, b""):
            found.pop(REPORT)
        assert found.items() <= expected.items()
        if "translator/scores/test.json" in found:
            assert "translator/scores/test.translations.txt" in found
        for promised in kept_promises(state, "written"):
            assert promised.items() <= found.items()

    def recover(state):
        check(state)
        evaluate(run, "valid")
        assert (run / "scores" / "valid.json").read_bytes() == expected["run/scores/valid.json"]

    return Program(("loading/", "explorer/", "report/", "tasks/"), recorder.recording, check, recover)


TRANSLATION = {
    "task": "translation",
    "model": {"kind": "encoder_decoder", "d_model": 4, "d_ff": 4, "num_heads": 1}
    | {"encoder": {"layers": 1}, "decoder": {"layers": 1}},
    "training": {"batches": {"kind": "pairs", "max_tokens": 1000}, "max_updates": 1, "num_threads": 1},
    "evaluation": {"beam_size": 1, "max_length_offset": 1, "max_length_ratio": 0.0},
}


# Sweeps: two trials of a cell, whose data are prepared by the sweep. Workers and controller are killed together.

SWEEP = {
    "base": {
        "task": "formal_language",
        "model": {"d_model": 4, "d_ff": 4, "num_heads": 1, "layers": "1"},
        "training": {"max_updates": 2},
    },
    "grid": {
        "data": {
            "sampled": {
                "prepare": {
                    "language": "dyck",
                    "train": 6,
                    "valid": 4,
                    "test_per_length": 1,
                    "train_lengths": [2, 6],
                    "test_lengths": [2, 6],
                }
            }
        }
    },
    "restarts": 2,
    "evaluate": {"valid": "selected", "train": "selected"},
}


class InThisProcess:
    """An engine that runs each job at once."""

    max_jobs = 1

    def __init__(self, on_end=lambda job: None):
        self._ended, self._numbers, self._on_end = [], itertools.count(), on_end

    def start(self, job):
        result, number = run_job(job), next(self._numbers)
        assert result.outcome == "done", result.message
        self._on_end(job)
        self._ended.append((number, result))
        return number

    def wait(self, timeout):
        ended, self._ended = self._ended, []
        return ended

    def close(self):
        pass


def before_each_flush_that_a_sweep_repeats(folder):
    """Return when processes are killed: the data, the end of both runs, and the scores of the best are not yet safe."""
    return [
        lambda number, site: "write_folder_atomically" in site and any(data_of(folder)),
        *[lambda number, site: "runs/logs.py" in site and "_record_end" in site] * 2,
        lambda number, site: site.startswith("flush_to_disk") and any(folder.runs.glob("*/scores/train.json")),
    ]


def data_of(folder):
    return [path for path in (folder.path / "data").glob("*") if path.is_dir() and not path.name.startswith(".")]


def jobs_of(sweep, folder):
    for trial in make_trials(sweep, folder.path):
        scores = (folder.run_dir(trial) / "scores").glob("*.json")
        yield Job(trial, folder.run_dir(trial), tuple(path.stem for path in scores))


def record_sweep(root, new_recorder):
    sweep, folder = SweepSettings.model_validate(SWEEP), SweepFolder(root / "new" / "sweep")

    def run(on_end=lambda job: None):
        return run_sweep(sweep, folder.path, lambda: InThisProcess(on_end), lambda status: None)

    with pytest.MonkeyPatch.context() as patch:
        recorder = new_recorder(root, patch)
        recorder.kill_before(before_each_flush_that_a_sweep_repeats(folder))
        rows = None
        while rows is None:
            with recorder.process():
                rows = run(lambda job: recorder.promise(("trial", job)))
        for job in jobs_of(sweep, folder):
            recorder.promise(("trial", job))
        tables = {path: path.read_bytes() for path in (folder.table, folder.index)}
        recorder.promise(("tables", list(tables)))
        results = root / "results" / "sweep.json"
        write_sweep_results(results, "structattn sweep sweep.yaml", sweep, read_sweep_results(sweep, folder.path))
        tables[results] = results.read_bytes()
        recorder.promise(("tables", [results]))

    def check(state):
        for job in kept_promises(state, "trial"):
            assert result_of(job) is not None
            assert all(is_scored(job.run_dir, split) for split in job.splits)
            open_prepared(job.trial.settings.data)
        promised = [path for paths in kept_promises(state, "tables") for path in paths]
        for path, content in tables.items():
            if path.exists() or path in promised:
                assert path.read_bytes() == content
        for path in data_of(folder):
            open_prepared(path)

    def recover(state):
        check(state)
        trained = []
        assert run(trained.append) == rows
        assert folder.table.read_bytes() == tables[folder.table]
        assert not {job.trial.name for job in trained if job in kept_promises(state, "trial")}

    return Program(("sweeps/",), recorder.recording, check, recover)


# The tests.


def before_flush(number):
    return lambda found, site: found == number


def before_each_flush_that_a_start_repeats(run):
    """Return when processes are killed: the settings, the best checkpoint and the end of the run are not yet safe."""
    return [
        lambda number, site: "flush_to_disk" in site and "write_settings" in site,
        lambda number, site: "write_folder_atomically" in site and (run.checkpoints / "6").exists(),
        lambda number, site: "runs/logs.py" in site and "_record_end" in site,
    ]


RECORDERS = {
    "training": record_training,
    "restart": partial(
        record_training, kill_before=before_each_flush_that_a_start_repeats, packages=("training/run_training.py",)
    ),
    "preparation": record_preparation,
    "results": record_results,
    "sweep": record_sweep,
}
every_program = pytest.mark.parametrize("program", RECORDERS, indirect=True)


@pytest.fixture(scope="module")
def program(request, tmp_path_factory, new_recorder):
    record = RECORDERS[request.param]
    names = set(signature(record).parameters) - {"root", "new_recorder", "kill_before", "packages"}
    fixtures = {name: request.getfixturevalue(name) for name in names}
    return record(tmp_path_factory.mktemp(request.param), new_recorder, **fixtures)


@pytest.fixture
def without_flushing(monkeypatch, program):
    """Recovery in tests need not reach the disk."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@every_program
def test_a_state_after_power_loss_recovers_to_the_last_promise(program, without_flushing):
    states = list(program.recording.states(draws=1))
    for state in random.Random(1).sample(states, QUICK):
        program.recording.restore(state.tree)
        program.check(state)


@every_program
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_states_after_power_loss_recover_to_the_end(request, program, without_flushing):
    states = list(program.recording.states(seed=2, draws=8))
    random.Random(2).shuffle(states)
    assert len(states) >= FEWER.get(request.node.callspec.params["program"], FULL)
    for index, state in enumerate(states[:FULL]):
        program.recording.restore(state.tree)
        (program.check if index % 4 else program.recover)(state)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_killed_run_that_was_resumed_keeps_its_promises(tmp_path, monkeypatch, new_recorder, small_settings, outcome):
    """What a killed process had not flushed may be lost after another process has relied on it."""
    flushes = 0
    for number in itertools.count():
        root = tmp_path / str(number)
        root.mkdir()
        program = record_training(
            root, new_recorder, small_settings, outcome, lambda run, number=number: [before_flush(number)]
        )
        states = list(program.recording.states(seed=number, draws=1))
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", lambda descriptor: None)
            for state in random.Random(number).sample(states, 40):
                program.recording.restore(state.tree)
                program.check(state)
        flushes = max(flushes, program.recording.num_syncs)
        if number >= flushes:
            break


@every_program
def test_every_flush_is_needed(program, without_flushing):
    """If the flush at any call site were missing, a state would break a promise.

    Except that of the name of a sweep's index, which the first trial repeats.
    """
    usual = {state.key for state in program.recording.states()}
    sites = [site for site in program.recording.sites if site.split(" in ")[1].startswith(program.packages)]
    sites = [site for site in sites if not (site.startswith("flush_to_disk") and "_write_index" in site)]
    assert sites
    needless = [site for site in sites if not is_needed(program, site, usual)]
    assert not needless, "\n".join(needless)


def is_needed(program, site, usual):
    """Whether the states that only a missing flush at a site allows include one that breaks a promise."""
    states = [state for state in program.recording.states(ignored=site) if state.key not in usual]
    random.Random(1).shuffle(states)
    return any(breaks_a_promise(program, state) for state in states)


def breaks_a_promise(program, state):
    program.recording.restore(state.tree)
    try:
        program.check(state)
    except Exception:
        return True
    return False
