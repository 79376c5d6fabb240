"""Run jobs on a SLURM cluster, one submission per job."""

import importlib
import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

from structattn.support.errors import UsageError
from structattn.support.imports import install_command
from structattn.sweeps.worker import Job, JobResult, run_job


class SlurmEngine:
    """An engine that submits each job with submitit.

    Args:
        max_jobs: the number of jobs submitted at once.
        logs: the folder for submitit's files.
        cluster: ``slurm``; ``local`` runs the submissions as processes on this machine.
        parameters: requested resources under submitit's names (``slurm_partition``, ``timeout_min``, ...). A job that
            reaches its time limit saves a checkpoint and is submitted again.

    Raises:
        UsageError: submitit is not installed.
    """

    def __init__(self, max_jobs: int, logs: Path, cluster: str = "slurm", **parameters: Any) -> None:
        try:
            submitit: Any = importlib.import_module("submitit")
        except ModuleNotFoundError:
            raise UsageError(f"--engine slurm needs an optional package: {install_command('cluster')}") from None
        self.max_jobs = max_jobs
        self._executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
        self._executor.update_parameters(**{"name": "structattn", "cpus_per_task": 1, "timeout_min": 240, **parameters})
        self._job_ids = itertools.count()
        self._running: dict[int, Any] = {}

    def start(self, job: Job) -> int:
        """Submit a job and return its id."""
        job_id = next(self._job_ids)
        self._running[job_id] = self._executor.submit(run_job_until_time_limit, job)
        return job_id

    def wait(self, timeout: float) -> list[tuple[int, JobResult]]:
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
