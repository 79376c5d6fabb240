"""The scheduling loop completes every job even if workers fail; the engines."""

import errno
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from multiprocessing import Pipe, forkserver
from types import SimpleNamespace

import pytest
import torch
from tests.program import invoke

from structattn.cli.sweep import _parameter
from structattn.runs.store import checkpoint_updates
from structattn.support.errors import StructattnError, UsageError
from structattn.support.processes import start_server
from structattn.sweeps import engines, scheduler
from structattn.sweeps import worker as work
from structattn.sweeps.engines import ProcessPoolEngine, RayEngine, SlurmEngine, run_job_until_time_limit
from structattn.sweeps.scheduler import MAX_REJECTIONS, MAX_WITHOUT_PROGRESS, RejectedError, run_jobs
from structattn.sweeps.trials import make_trials
from structattn.sweeps.worker import Job, JobResult, run_job
from structattn.training.distributed import LostProcessError


class FakeEngine:
    """An engine whose jobs end as scripted: trial title -> successive outcomes; other jobs complete at once."""

    def __init__(self, max_jobs, script):
        self.max_jobs, self.script = max_jobs, {name: deque(kinds) for name, kinds in script.items()}
        self.running, self.started, self.most, self.closed = {}, [], 0, False

    def start(self, job):
        self.started.append(job.trial.title)
        self.running[len(self.started)] = job
        self.most = max(self.most, len(self.running))
        return len(self.started)

    def wait(self, timeout):
        number = next(iter(self.running), None)
        if number is None:
            return []
        kinds = self.script.get(self.running.pop(number).trial.title)
        return [(number, JobResult(kinds.popleft() if kinds else "done", "reason"))]

    def close(self):
        self.closed = True


@pytest.fixture
def jobs(sweep, tmp_path):
    return [Job(trial, tmp_path / trial.name) for trial in make_trials(sweep, tmp_path)]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(scheduler, "RETRY_SECONDS", 0.0)


def test_all_jobs_complete_and_at_most_max_jobs_run_at_once(jobs):
    engine = FakeEngine(3, {})
    status = run_jobs(engine, jobs)
    assert sorted(job.trial.title for job in status.done) == sorted(job.trial.title for job in jobs)
    assert (engine.most, engine.closed, status.failed) == (3, True, [])


@pytest.mark.parametrize("kind", ["crashed", "busy", "interrupted"])
def test_a_job_that_did_not_complete_is_restarted(jobs, kind):
    engine = FakeEngine(2, {jobs[0].trial.title: [kind] * 3})
    status = run_jobs(engine, jobs)
    assert len(status.done) == len(jobs)
    assert engine.started.count(jobs[0].trial.title) == 4


def test_a_job_that_fails_does_not_stop_the_others(jobs):
    status = run_jobs(FakeEngine(2, {jobs[1].trial.title: ["failed"]}), jobs)
    assert status.failed == [(jobs[1], "reason")]
    assert len(status.done) == len(jobs) - 1


def test_a_job_that_keeps_crashing_its_worker_fails(jobs):
    engine = FakeEngine(2, {jobs[0].trial.title: ["crashed"] * 99})
    status = run_jobs(engine, jobs)
    assert engine.started.count(jobs[0].trial.title) == MAX_WITHOUT_PROGRESS
    assert status.failed == [
        (jobs[0], f"its worker crashed {MAX_WITHOUT_PROGRESS} times at the same checkpoint: reason")
    ]


def test_a_job_that_is_always_interrupted_before_a_new_checkpoint_fails(jobs):
    title = jobs[0].trial.title
    engine = FakeEngine(2, {title: ["crashed", *["interrupted"] * 99]})
    status = run_jobs(engine, jobs)
    assert engine.started.count(title) == 1 + MAX_WITHOUT_PROGRESS
    message = "no progress in 5 jobs that were interrupted; their time limit may be too short: reason"
    assert (status.failed, len(status.done)) == ([(jobs[0], message)], len(jobs) - 1)


@pytest.mark.parametrize("kind", ["crashed", "interrupted"])
def test_restarts_are_tolerated_while_new_checkpoints_appear(jobs, kind):
    engine = FakeEngine(1, {jobs[0].trial.title: [kind] * 12})
    started = engine.start

    def start(job):
        if job is jobs[0]:
            update = 9000 + 1000 * (len(engine.started) // 2)  # names of more and more digits, the best one kept
            for kept in (9000, update):
                (job.run_dir / "checkpoints" / str(kept)).mkdir(parents=True, exist_ok=True)
        return started(job)

    engine.start = start
    assert run_jobs(engine, jobs[:1]).failed == []


def test_the_engine_is_closed_when_the_loop_is_interrupted(jobs):
    engine = FakeEngine(2, {})

    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(engine, jobs, check=check)
    assert engine.closed


def rejecting(engine, rejects):
    """Let an engine reject jobs while ``rejects(number of the try, its running jobs)``."""
    started, tries = engine.start, itertools.count(1)

    def start(job):
        if rejects(next(tries), len(engine.running)):
            raise RejectedError("sbatch: error: limit")
        return started(job)

    engine.start = start
    return engine


def test_rejected_jobs_wait_and_the_others_go_on(jobs, caplog):
    engine = rejecting(FakeEngine(4, {}), lambda number, running: running > 1 or number <= 2)
    status = run_jobs(engine, jobs)
    assert (engine.started, engine.most, status.failed) == ([job.trial.title for job in jobs], 2, [])
    assert caplog.messages == ["a job cannot be started now and is tried again: sbatch: error: limit"]


def test_rejections_end_a_sweep_of_which_no_job_is_running(jobs):
    engine = rejecting(FakeEngine(4, {}), lambda number, running: number > 1)
    message = f"no job is running, and none could be started in {MAX_REJECTIONS} tries: sbatch: error: limit"
    with pytest.raises(StructattnError, match=message):
        run_jobs(engine, jobs)
    assert (len(engine.started), engine.running, engine.closed) == (1, {}, True)


@pytest.mark.parametrize("module_name", ["ray", "submitit"])
def test_a_missing_library_is_reported_with_its_extra(module_name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module_name, None)  # importing it fails
    with pytest.raises(
        UsageError, match=rf"optional library {module_name}, .*pip install '(ray\[client\]>=|structattn\[cluster\])"
    ):
        RayEngine() if module_name == "ray" else SlurmEngine(1, tmp_path)


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """slurm(assignments) opens an engine with the parameters of `--cluster`, as on a machine with srun."""
    executor = pytest.importorskip("submitit").SlurmExecutor
    monkeypatch.setattr(executor, "affinity", classmethod(lambda cls: 2))
    return lambda *assignments: SlurmEngine(1, tmp_path, **dict(map(_parameter, assignments)))


def test_parameters_of_slurm_are_numbers_booleans_and_text(slurm):
    engine = slurm("mem_gb=1.5", "slurm_use_srun=False", "timeout_min=60", "slurm_time=1:30:00", "slurm_account=007")
    found = {"mem": "1536MB", "use_srun": False, "time": "1:30:00", "account": "007", "cpus_per_task": 1}
    assert engine._executor._executor.parameters.items() >= found.items()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("mem_gb=much", '--cluster: Parameter "mem_gb" expected type .*float.*value: "much"'),
        ("timeout_min=1.5", '--cluster: Parameter "timeout_min" expected type .*int.*value: "1.5"'),
        ("mem_gb=.inf", "--cluster: cannot convert float infinity"),
        ("slurm_foo=3", "--cluster: Unknown argument 'foo' for executor 'slurm'.*Valid arguments: .*partition"),
        ("foo=3", "--cluster: Parameter 'foo' need.*; expected parameters of submitit, as timeout_min=600, mem_gb"),
        ("cluster=foo", "--engine slurm: .*named foo; expected .* --cluster cluster=local"),
    ],
)
def test_parameters_that_submitit_refuses_are_named(slurm, assignment, message):
    with pytest.raises(UsageError, match=message):
        slurm(assignment)


def test_what_sbatch_refuses_is_rejected_in_its_words(slurm, jobs, monkeypatch, capfd, tmp_path):
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho sbatch: error: QOSMaxSubmitJobPerUserLimit >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    engine = slurm()
    with pytest.raises(RejectedError, match=r"^sbatch: error: QOSMaxSubmitJobPerUserLimit$"):
        engine.start(jobs[0])
    assert (engine._running, capfd.readouterr().err) == ({}, "")


def test_parameters_of_the_engine_are_none_of_submitit(tmp_path):
    (tmp_path / "sweep.yaml").write_text("base: formal_language")
    shown = invoke("sweep", tmp_path / "sweep.yaml", "-o", tmp_path / "out", "--engine", "slurm", "--cluster", "logs=3")
    assert (shown.exit_code, "--cluster logs: expected a parameter of submitit" in shown.output) == (2, True)


def test_a_machine_without_slurm_is_named(slurm, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r'--engine slurm: Could not detect "srun".*; expected a machine with srun'):
        slurm()


def test_busy_jobs_are_retried_with_backoff(jobs, monkeypatch):
    monkeypatch.setattr(scheduler, "RETRY_SECONDS", 1.0)
    clock, asked = [0.0], []
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: clock[0])
    engine = FakeEngine(1, {jobs[0].trial.title: ["busy"] * 8})
    started = engine.start

    def start(job):
        asked.append(clock[0])
        return started(job)

    def on_status(status):
        clock[0] += 0.5

    engine.start = start
    run_jobs(engine, jobs[:1], on_status)
    waits = [after - before for before, after in itertools.pairwise(asked)]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(30, abs=1)


def test_busy_jobs_are_retried_for_days(jobs):
    assert run_jobs(FakeEngine(1, {jobs[0].trial.title: ["busy"] * 1100}), jobs[:1]).done == jobs[:1]


def test_the_end_of_a_long_message_fits_a_pipe(jobs, monkeypatch):
    monkeypatch.setattr(engines, "run_job", lambda job: JobResult("failed", "x" + "𝔘" * 100_000))
    monkeypatch.setattr(engines, "stop_with_parent", lambda: None)
    receiver, sender = Pipe(duplex=False)
    sending = threading.Thread(target=engines._run_and_send, args=(jobs[0], sender), daemon=True)
    sending.start()
    sending.join(10)
    assert not sending.is_alive()
    assert receiver.recv() == JobResult("failed", "𝔘" * engines.MAX_MESSAGE_LENGTH)


def test_out_of_memory_is_retried(jobs, monkeypatch):
    def raises(error):
        def fail(*_, **__):
            raise error

        return fail

    for error in (MemoryError("1 GB"), torch.OutOfMemoryError("1 GB")):
        monkeypatch.setattr(work, "train", raises(error))
        assert run_job(jobs[0]) == JobResult("crashed", "out of memory: 1 GB")
    monkeypatch.setattr(work, "train", raises(OSError(errno.ENOSPC, "No space left on device", "scores/test.json")))
    advice = "free some disk space and run the same command again"
    assert run_job(jobs[0]) == JobResult("failed", f"scores/test.json: No space left on device; {advice}")


def test_ray_asks_for_a_cluster_that_answers(monkeypatch):
    def refuse(address, **options):
        raise ValueError("Ray Client requires pip package `ray[client]`\nmore")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=refuse))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        with pytest.raises(UsageError, match=rf"^--cluster address=127\.0\.0\.1:{port}: cannot be reached \("):
            RayEngine(address=f"127.0.0.1:{port}")
        listening.listen()
        with pytest.raises(
            UsageError, match=rf"^--cluster address=ray://127\.0\.0\.1:{port}: Ray Client requires .*`$"
        ):
            RayEngine(address=f"ray://127.0.0.1:{port}")


def test_the_address_of_a_cluster_may_be_of_ipv6_or_a_name_of_ray(monkeypatch):
    asked = []
    monkeypatch.setattr(socket, "create_connection", lambda address, timeout: asked.append(address) or socket.socket())
    for address in ("ray://[::1]:10001", "head:6379", "auto"):
        engines._require_reachable(address)
    assert asked == [("::1", 10001), ("head", 6379)]


def test_the_time_limit_of_slurm_saves_a_checkpoint(jobs, monkeypatch):
    trained, before, default_handler = work.train, signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)

    def end_once_training_listens():
        while signal.getsignal(signal.SIGTERM) is default_handler:
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
        result = run_job_until_time_limit(job)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert result.outcome == "interrupted"
    assert checkpoint_updates(job.run_dir / "checkpoints")


def test_a_killed_server_of_workers_is_started_again(jobs, monkeypatch):
    """While the server imports its modules, before it has started a worker."""
    server = forkserver._forkserver
    server._stop()
    read, kills = forkserver.read_signed, []

    def kill_first(descriptor):
        if not kills and server._forkserver_pid is not None:  # not for a process of an earlier test
            kills.append(server._forkserver_pid)
            os.kill(server._forkserver_pid, signal.SIGKILL)
            raise EOFError  # also if the server was so fast that it has answered
        return read(descriptor)

    monkeypatch.setattr(forkserver, "read_signed", kill_first)
    monkeypatch.setattr(engines, "start_server", lambda *modules: start_server("time"))
    engine = ProcessPoolEngine(1)
    try:
        job_id = engine.start(replace(jobs[0], splits=("none",)))
        assert kills
        assert server._forkserver_pid != kills[0]
        assert list(engine._running) == [job_id]
    finally:
        engine.close()
        server._stop()  # other tests need one that has imported torch


def test_a_server_of_workers_that_is_always_killed_is_reported(jobs, monkeypatch):
    def closed(_descriptor):
        raise EOFError

    monkeypatch.setattr(forkserver, "read_signed", closed)
    with pytest.raises(StructattnError, match="the server that starts the workers was killed 5 times"):
        ProcessPoolEngine(1).start(jobs[0])


def test_a_job_that_lost_a_process_is_tried_again(jobs, monkeypatch):
    def train(*arguments, **more):
        raise LostProcessError("killed")

    monkeypatch.setattr(work, "train", train)
    assert run_job(jobs[0]) == JobResult("crashed", "killed")


def test_a_job_ignores_the_variables_of_torchrun(jobs, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert run_job(jobs[0]) == JobResult("done")


def test_a_worker_whose_parent_was_killed_ends_without_a_traceback(jobs, monkeypatch):
    monkeypatch.setattr(engines, "run_job", lambda job: JobResult("done", ""))
    monkeypatch.setattr(engines, "stop_with_parent", lambda: None)
    receiver, sender = Pipe(duplex=False)
    receiver.close()
    engines._run_and_send(jobs[0], sender)
    sender.close()
