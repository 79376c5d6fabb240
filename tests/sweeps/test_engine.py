"""The loop around an engine: nothing is lost, whatever ends how."""

import itertools
import os
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import replace

import pytest
import torch

from structattn.runs.store import checkpoint_updates
from structattn.support.errors import UsageError
from structattn.sweeps import engine as module
from structattn.sweeps import work
from structattn.sweeps.engine import MOST_DEATHS, run_all
from structattn.sweeps.ray_engine import RayEngine
from structattn.sweeps.slurm_engine import SlurmEngine, perform_until_the_limit
from structattn.sweeps.trials import trials_of
from structattn.sweeps.work import Ending, Job, perform


class Scripted:
    """Ends jobs as a script says: name -> endings, in turn; what is not in it is done at once."""

    def __init__(self, slots, script):
        self.slots, self.script = slots, {name: deque(kinds) for name, kinds in script.items()}
        self.running, self.started, self.most, self.closed = {}, [], 0, False

    def start(self, job):
        self.started.append(job.trial.title)
        self.running[len(self.started)] = job
        self.most = max(self.most, len(self.running))
        return len(self.started)

    def finished(self, seconds):
        number = next(iter(self.running), None)
        if number is None:
            return []
        kinds = self.script.get(self.running.pop(number).trial.title)
        return [(number, Ending(kinds.popleft() if kinds else "done", "why"))]

    def close(self):
        self.closed = True


@pytest.fixture
def jobs(sweep, tmp_path):
    return [Job(trial, tmp_path / trial.name) for trial in trials_of(sweep, tmp_path)]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BEFORE_ASKING_AGAIN", 0.0)


def test_all_jobs_run_with_the_slots_in_use(jobs):
    engine = Scripted(3, {})
    standing = run_all(engine, jobs)
    assert sorted(job.trial.title for job in standing.done) == sorted(job.trial.title for job in jobs)
    assert (engine.most, engine.closed, standing.failed) == (3, True, [])


@pytest.mark.parametrize("kind", ["killed", "busy", "interrupted"])
def test_a_job_that_did_not_end_runs_again(jobs, kind):
    engine = Scripted(2, {jobs[0].trial.title: [kind] * 3})
    standing = run_all(engine, jobs)
    assert len(standing.done) == len(jobs)
    assert engine.started.count(jobs[0].trial.title) == 4


def test_a_job_that_fails_does_not_stop_the_others(jobs):
    standing = run_all(Scripted(2, {jobs[1].trial.title: ["failed"]}), jobs)
    assert standing.failed == [(jobs[1], "why")]
    assert len(standing.done) == len(jobs) - 1


def test_a_job_that_kills_its_workers_is_given_up(jobs):
    engine = Scripted(2, {jobs[0].trial.title: ["killed"] * 99})
    standing = run_all(engine, jobs)
    assert engine.started.count(jobs[0].trial.title) == MOST_DEATHS
    assert standing.failed == [(jobs[0], f"its worker died {MOST_DEATHS} times at one checkpoint: why")]


def test_deaths_are_forgiven_while_there_is_progress(jobs):
    engine = Scripted(1, {jobs[0].trial.title: ["killed"] * 12})
    started = engine.start

    def start(job):
        if job is jobs[0]:
            update = 9000 + 1000 * (len(engine.started) // 2)  # names of more and more digits, the best one kept
            for kept in (9000, update):
                (job.folder / "checkpoints" / str(kept)).mkdir(parents=True, exist_ok=True)
        return started(job)

    engine.start = start
    assert run_all(engine, jobs[:1]).failed == []


def test_the_engine_is_closed_when_the_whole_is_ended(jobs):
    engine = Scripted(2, {})

    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(engine, jobs, check=check)
    assert engine.closed


@pytest.mark.parametrize("module_name", ["ray", "submitit"])
def test_what_is_not_installed_is_named_with_its_extra(module_name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module_name, None)  # importing it fails
    with pytest.raises(UsageError, match=r"needs the extra: pip install 'structattn\[cluster\]'"):
        RayEngine() if module_name == "ray" else SlurmEngine(1, tmp_path)


def test_who_waits_for_others_asks_less_and_less_often(jobs, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BEFORE_ASKING_AGAIN", 1.0)
    clock, asked = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    engine = Scripted(1, {jobs[0].trial.title: ["busy"] * 8})
    started = engine.start

    def start(job):
        asked.append(clock[0])
        return started(job)

    def watch(standing):
        clock[0] += 0.5

    engine.start = start
    run_all(engine, jobs[:1], watch)
    waits = [after - before for before, after in itertools.pairwise(asked)]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(30, abs=1)


def test_what_a_worker_tells_fits_a_pipe_and_little_memory_is_no_fault(jobs, monkeypatch):
    def raises(error):
        def fail(*_, **__):
            raise error

        return fail

    monkeypatch.setattr(work, "train", raises(ValueError("x" * 100_000)))
    ending = perform(jobs[0])
    assert (ending.kind, len(ending.message)) == ("failed", 20_000)
    for error in (MemoryError("1 GB"), torch.OutOfMemoryError("1 GB")):
        monkeypatch.setattr(work, "train", raises(error))
        assert perform(jobs[0]) == Ending("killed", "memory ran out: 1 GB")


def test_a_time_limit_of_slurm_saves_a_checkpoint(jobs, monkeypatch):
    trained, before, unheard = work.train, signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)

    def end_once_training_listens():
        while signal.getsignal(signal.SIGTERM) is unheard:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR2)

    def train_until_the_limit(*arguments, **options):
        threading.Thread(target=end_once_training_listens, daemon=True).start()
        return trained(*arguments, **options)

    monkeypatch.setattr(work, "train", train_until_the_limit)
    endless = jobs[0].trial.settings.training.model_copy(update={"max_updates": 10**9, "max_epochs": None})
    settings = jobs[0].trial.settings.model_copy(update={"training": endless})
    job = replace(jobs[0], trial=replace(jobs[0].trial, settings=settings))
    try:
        ending = perform_until_the_limit(job)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert ending.kind == "interrupted"
    assert checkpoint_updates(job.folder / "checkpoints")
