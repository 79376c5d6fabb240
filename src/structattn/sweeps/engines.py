"""Run jobs in processes on this machine, on Ray or on SLURM."""

import io
import os
import signal
import socket
import threading
import time
from collections.abc import Hashable
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from structattn.support.errors import StructattnError, UsageError
from structattn.support.imports import import_library
from structattn.support.processes import start_server, stop_with_parent
from structattn.sweeps.scheduler import RejectedError
from structattn.sweeps.worker import Job, JobResult, run_job

MAX_SERVER_STARTS = 5
SERVER_RESTART_SECONDS = 0.2
MAX_MESSAGE_LENGTH = 15_000  # characters of four bytes fill a pipe's buffer: a worker exits before its result is read


class ProcessPoolEngine:
    """An engine that starts one process per job, forked from a server process that has already imported torch.

    A new process for each job costs a few hundredths of a second, leaks no state into the next job, and may crash
    without affecting the others.

    Args:
        max_jobs: the number of jobs to run at once.
    """

    def __init__(self, max_jobs: int) -> None:
        self.max_jobs = max_jobs
        self._running: dict[BaseProcess, Connection] = {}

    def start(self, job: Job) -> BaseProcess:
        """Start a process for a job and return it.

        Raises:
            StructattnError: the server process was killed repeatedly.
        """
        for _ in range(MAX_SERVER_STARTS):
            context = start_server(
                run_job.__module__, "torch._dynamo"
            )  # the first optimizer would import it, in seconds
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_run_and_send, args=(job, sender), daemon=False)
            try:
                process.start()
            except (EOFError, ConnectionError):  # the server was killed; the next start starts it again
                receiver.close()
                time.sleep(SERVER_RESTART_SECONDS)  # it may not have ended yet
                continue
            finally:
                sender.close()
            self._running[process] = receiver
            return process
        raise StructattnError(f"the server that starts the workers was killed {MAX_SERVER_STARTS} times")

    def wait(self, timeout: float) -> list[tuple[BaseProcess, JobResult]]:
        """Return the processes that have ended, and the results of their jobs."""
        wait([process.sentinel for process in self._running], timeout)
        return [(process, self._result(process)) for process in list(self._running) if process.exitcode is not None]

    def close(self) -> None:
        """Terminate all processes; each saves a checkpoint first."""
        for process in self._running:
            process.terminate()
        for process, receiver in self._running.items():
            process.join()
            receiver.close()
        self._running.clear()

    def _result(self, process: BaseProcess) -> JobResult:
        receiver = self._running.pop(process)
        try:
            result: JobResult = receiver.recv()
        except EOFError:
            result = JobResult("crashed", f"exit code {process.exitcode}")
        process.join()
        receiver.close()
        return result


def _run_and_send(job: Job, sender: Connection) -> None:
    threading.Thread(target=stop_with_parent, daemon=True).start()
    result = run_job(job)
    with suppress(BrokenPipeError):  # the parent was killed
        sender.send(replace(result, message=result.message[-MAX_MESSAGE_LENGTH:]))


def _require_reachable(address: str) -> None:
    """Raise UsageError if nothing answers at HOST:PORT, for which Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():  # unlike "auto", which Ray looks up
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()  # an IPv6 host is in brackets
        except OSError as error:
            reason = f"cannot be reached ({error.strerror or error})"
            raise UsageError(f"--cluster address={address}: {reason}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class RayEngine:
    """An engine that runs each job as a Ray task. All machines must share the file system with the run folders.

    Args:
        max_jobs: the number of jobs to run at once; None: one per CPU of the cluster.
        address: the address of a cluster; None starts Ray on this machine and stops it at the end.

    Raises:
        UsageError: Ray is not installed, does not start, or there is no cluster at the address.
    """

    def __init__(self, max_jobs: int | None = None, address: str | None = None) -> None:
        self._ray: Any = import_library("ray", "cluster", "--engine ray")
        local = {} if address else {"num_cpus": max_jobs, "include_dashboard": False}
        if address:
            _require_reachable(address)
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
        except (ConnectionError, RuntimeError, ValueError) as error:
            given = f"--cluster address={address}" if address else "--engine ray"
            raise UsageError(f"{given}: {_first_line(error)}") from None
        self.max_jobs = max_jobs or int(self._ray.cluster_resources().get("CPU", 1))
        # The scheduler decides from the checkpoints whether to restart a crashed worker, so Ray must not retry.
        self._run_job = self._ray.remote(num_cpus=1, max_retries=0)(run_job)
        self._running: list[Any] = []

    def start(self, job: Job) -> Hashable:
        """Submit a job to Ray and return the reference to its result."""
        self._running.append(self._run_job.remote(job))
        reference: Hashable = self._running[-1]
        return reference

    def wait(self, timeout: float) -> list[tuple[Hashable, JobResult]]:
        """Return the references and results of jobs that have ended."""
        if not self._running:
            time.sleep(timeout)
            return []
        ended, self._running = self._ray.wait(self._running, num_returns=1, timeout=timeout)
        return [(reference, self._result(reference)) for reference in ended]

    def close(self) -> None:
        """Cancel all running jobs; a Ray that was started on this machine is stopped."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _result(self, reference: Any) -> JobResult:
        try:
            result: JobResult = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return JobResult("crashed", _first_line(error))
        return result


class SlurmEngine:
    """An engine that submits each job with submitit.

    Args:
        max_jobs: the number of jobs submitted at once.
        logs: the folder for submitit's files.
        cluster: ``slurm``; ``local`` runs the submissions as processes on this machine.
        parameters: requested resources under submitit's names (``slurm_partition``, ``timeout_min``, ...). A job that
            reaches its time limit saves a checkpoint and is submitted again.

    Raises:
        UsageError: submitit is not installed, the scheduler is not there, or submitit refuses a parameter.
    """

    def __init__(self, max_jobs: int, logs: Path, cluster: str = "slurm", **parameters: Any) -> None:
        submitit: Any = import_library("submitit", "cluster", "--engine slurm")
        self.max_jobs = max_jobs
        defaults = {"name": "structattn", "cpus_per_task": 1, "timeout_min": 240}
        try:
            self._executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
        except (RuntimeError, ValueError) as error:
            expected = "a machine with srun, or --cluster cluster=local"
            raise UsageError(f"--engine slurm: {error}; expected {expected}") from None
        try:
            self._executor.update_parameters(**defaults | parameters)
        except (ArithmeticError, AssertionError, NameError, TypeError, ValueError) as error:
            expected = "parameters of submitit, as timeout_min=600, mem_gb=1.5 or slurm_partition=short"
            raise UsageError(f"--cluster: {_first_line(error)}; expected {expected}") from None
        self._rejections = (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError)
        self._running: dict[str, Any] = {}

    def start(self, job: Job) -> str:
        """Submit a job and return its id in SLURM.

        Raises:
            RejectedError: sbatch refuses it, with its message.
        """
        try:
            with redirect_stderr(io.StringIO()):  # submitit prints the message, too, and at each try
                submission = self._executor.submit(run_job_until_time_limit, job)
        except self._rejections as error:
            raise RejectedError(str(error)) from None
        job_id: str = submission.job_id
        self._running[job_id] = submission
        return job_id

    def wait(self, timeout: float) -> list[tuple[str, JobResult]]:
        """Return the ids and results of jobs that have ended."""
        time.sleep(timeout)
        ended = [job_id for job_id, submission in self._running.items() if submission.done()]
        return [(job_id, _result(self._running.pop(job_id))) for job_id in ended]

    def close(self) -> None:
        """Cancel all running jobs."""
        for submission in self._running.values():
            submission.cancel()
        self._running.clear()


def run_job_until_time_limit(job: Job) -> JobResult:
    """Run a job; SIGUSR2, which SLURM sends before the time limit, stops it with a checkpoint as SIGTERM does."""
    signal.signal(signal.SIGUSR2, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    return run_job(job)


def _result(submission: Any) -> JobResult:
    if submission.exception() is not None:  # run_job returns its own exceptions as results: the worker crashed
        return JobResult("crashed", str(submission.exception()).strip().rpartition("\n")[2])
    result: JobResult = submission.result()
    return result
