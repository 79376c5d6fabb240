"""Run jobs on Ray: on a cluster, or on this machine."""

import importlib
import itertools
import time
from typing import Any

from structattn.support.errors import UsageError
from structattn.support.imports import install_command
from structattn.sweeps.worker import Job, JobResult, run_job


class RayEngine:
    """An engine that runs each job as a Ray task. All machines must share the file system with the run folders.

    Args:
        max_jobs: the number of jobs to run at once; None: one per CPU of the cluster.
        address: the address of a cluster; None starts Ray on this machine and stops it at the end.

    Raises:
        UsageError: Ray is not installed.
    """

    def __init__(self, max_jobs: int | None = None, address: str | None = None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ModuleNotFoundError:
            raise UsageError(f"--engine ray needs an optional package: {install_command('cluster')}") from None
        local = {} if address else {"num_cpus": max_jobs, "include_dashboard": False}
        self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
        self.max_jobs = max_jobs or int(self._ray.cluster_resources().get("CPU", 1))
        # The scheduler decides from the checkpoints whether to restart a crashed worker, so Ray must not retry.
        self._run_job = self._ray.remote(num_cpus=1, max_retries=0)(run_job)
        self._job_ids = itertools.count()
        self._running: dict[Any, int] = {}

    def start(self, job: Job) -> int:
        """Submit a job to Ray and return its id."""
        job_id = next(self._job_ids)
        self._running[self._run_job.remote(job)] = job_id
        return job_id

    def wait(self, timeout: float) -> list[tuple[int, JobResult]]:
        """Return the ids and results of jobs that have ended."""
        if not self._running:
            time.sleep(timeout)
            return []
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout)
        return [(self._running.pop(reference), self._result(reference)) for reference in ended]

    def close(self) -> None:
        """Cancel all running jobs; a Ray that was started on this machine is stopped."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _result(self, reference: Any) -> JobResult:
        try:
            result: JobResult = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return JobResult("crashed", str(error).split("\n", maxsplit=1)[0])
        return result
