"""Jobs on a SLURM cluster, one submission each."""

import importlib
import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

from structattn.support.errors import UsageError
from structattn.sweeps.work import Ending, Job, perform


class SlurmEngine:
    """An engine that submits each job with submitit.

    Args:
        slots: how many are submitted at once.
        logs: the folder of submitit's files.
        cluster: "slurm"; "local" runs the same submissions as processes here.
        parameters: what is asked of the cluster, as submitit names it (``slurm_partition``, ``timeout_min``, ...). A
            job that meets its time limit saves a checkpoint and is submitted again.

    Raises:
        UsageError: submitit is not installed.
    """

    def __init__(self, slots: int, logs: Path, cluster: str = "slurm", **parameters: Any) -> None:
        try:
            submitit: Any = importlib.import_module("submitit")
        except ModuleNotFoundError:
            raise UsageError("--engine slurm needs the extra: pip install 'structattn[cluster]'") from None
        self.slots = slots
        self._executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
        self._executor.update_parameters(**{"name": "structattn", "cpus_per_task": 1, "timeout_min": 240, **parameters})
        self._numbers = itertools.count()
        self._running: dict[int, Any] = {}

    def start(self, job: Job) -> int:
        """Submit a job."""
        number = next(self._numbers)
        self._running[number] = self._executor.submit(perform_until_the_limit, job)
        return number

    def finished(self, seconds: float) -> list[tuple[int, Ending]]:
        """The jobs that have ended."""
        time.sleep(seconds)
        ended = [number for number, submission in self._running.items() if submission.done()]
        return [(number, _ending(self._running.pop(number))) for number in ended]

    def close(self) -> None:
        """Cancel what is running."""
        for submission in self._running.values():
            submission.cancel()
        self._running.clear()


def perform_until_the_limit(job: Job) -> Ending:
    """Bring a job to its end; before its time is up SLURM sends USR2, which stops it as SIGTERM does."""
    signal.signal(signal.SIGUSR2, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    return perform(job)


def _ending(submission: Any) -> Ending:
    if submission.exception() is not None:  # perform turns every exception of its own into an ending
        return Ending("killed", str(submission.exception()).strip().rpartition("\n")[2])
    ending: Ending = submission.result()
    return ending
