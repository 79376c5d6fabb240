"""Jobs in processes on this machine."""

import itertools
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from structattn.sweeps.work import Ending, Job, perform


class Pool:
    """An engine with one process for each job, forked from a server that has torch loaded.

    A process of its own for each job costs some hundredths of a second and leaves nothing behind, and its death
    concerns nobody else.

    Args:
        slots: how many run at once.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([perform.__module__])
        self._numbers = itertools.count()
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}

    def start(self, job: Job) -> int:
        """Start a process for a job."""
        number = next(self._numbers)
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(job, theirs), daemon=False)
        process.start()
        theirs.close()
        self._running[number] = process, ours
        return number

    def finished(self, seconds: float) -> list[tuple[int, Ending]]:
        """The jobs whose processes have ended."""
        wait([process.sentinel for process, _ in self._running.values()], seconds)
        ended = [number for number, (process, _) in self._running.items() if process.exitcode is not None]
        return [(number, self._ending(number)) for number in ended]

    def close(self) -> None:
        """Stop all processes; each saves a checkpoint first."""
        for process, _ in self._running.values():
            process.terminate()
        for process, ending in self._running.values():
            process.join()
            ending.close()
        self._running.clear()

    def _ending(self, number: int) -> Ending:
        process, ending = self._running.pop(number)
        try:
            result: Ending = ending.recv()
        except EOFError:
            result = Ending("killed", f"exit code {process.exitcode}")
        process.join()
        ending.close()
        return result


def _work(job: Job, ending: Connection) -> None:
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    ending.send(perform(job))


def _stop_with_parent() -> None:
    """Stop when the process that started this one is gone, however it went: nobody would hear of the end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
