"""Jobs on Ray: a cluster, or this machine."""

import importlib
import itertools
import time
from typing import Any

from structattn.support.errors import UsageError
from structattn.sweeps.work import Ending, Job, perform


class RayEngine:
    """An engine whose workers are Ray's; run folders must lie where all its machines see them.

    Args:
        slots: how many run at once; None: one for each processor of the cluster.
        address: of a cluster; None starts Ray here and stops it in the end.

    Raises:
        UsageError: Ray is not installed.
    """

    def __init__(self, slots: int | None = None, address: str | None = None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ModuleNotFoundError:
            raise UsageError("--engine ray needs the extra: pip install 'structattn[cluster]'") from None
        here = {} if address else {"num_cpus": slots, "include_dashboard": False}
        self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **here)
        self.slots = slots or int(self._ray.cluster_resources().get("CPU", 1))
        # A worker that dies is our affair (max_retries=0): whether to go on depends on the checkpoints that it left.
        self._perform = self._ray.remote(num_cpus=1, max_retries=0)(perform)
        self._numbers = itertools.count()
        self._running: dict[Any, int] = {}

    def start(self, job: Job) -> int:
        """Hand a job to Ray."""
        number = next(self._numbers)
        self._running[self._perform.remote(job)] = number
        return number

    def finished(self, seconds: float) -> list[tuple[int, Ending]]:
        """The jobs that have ended."""
        if not self._running:
            time.sleep(seconds)
            return []
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [(self._running.pop(reference), self._ending(reference)) for reference in ended]

    def close(self) -> None:
        """Stop what is running; a local Ray ends with it."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _ending(self, reference: Any) -> Ending:
        try:
            ending: Ending = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return Ending("killed", str(error).split("\n", maxsplit=1)[0])
        return ending
