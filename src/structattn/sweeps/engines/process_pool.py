"""Run jobs in processes on this machine."""

import itertools
import threading
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from structattn.support.errors import StructattnError
from structattn.support.processes import start_context, stop_with_parent
from structattn.sweeps.worker import Job, JobResult, run_job

MAX_SERVER_STARTS = 5
SERVER_RESTART_SECONDS = 0.2


class ProcessPoolEngine:
    """An engine that starts one process per job, forked from a server process that has already imported torch.

    A new process for each job costs a few hundredths of a second, leaks no state into the next job, and may crash
    without affecting the others.

    Args:
        max_jobs: the number of jobs to run at once.
    """

    def __init__(self, max_jobs: int) -> None:
        self.max_jobs = max_jobs
        self._context = start_context()
        self._context.set_forkserver_preload([run_job.__module__])
        self._job_ids = itertools.count()
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}

    def start(self, job: Job) -> int:
        """Start a process for a job and return its id.

        Raises:
            StructattnError: the server process was killed repeatedly.
        """
        job_id = next(self._job_ids)
        for _ in range(MAX_SERVER_STARTS):
            receiver, sender = self._context.Pipe(duplex=False)
            process = self._context.Process(target=_run_and_send, args=(job, sender), daemon=False)
            try:
                process.start()
            except (EOFError, ConnectionError):  # the server was killed; the next start starts it again
                receiver.close()
                time.sleep(SERVER_RESTART_SECONDS)  # it may not have ended yet
                continue
            finally:
                sender.close()
            self._running[job_id] = process, receiver
            return job_id
        raise StructattnError(f"the server that starts the workers was killed {MAX_SERVER_STARTS} times")

    def wait(self, timeout: float) -> list[tuple[int, JobResult]]:
        """Return the ids and results of jobs whose processes have ended."""
        wait([process.sentinel for process, _ in self._running.values()], timeout)
        ended = [job_id for job_id, (process, _) in self._running.items() if process.exitcode is not None]
        return [(job_id, self._result(job_id)) for job_id in ended]

    def close(self) -> None:
        """Terminate all processes; each saves a checkpoint first."""
        for process, _ in self._running.values():
            process.terminate()
        for process, receiver in self._running.values():
            process.join()
            receiver.close()
        self._running.clear()

    def _result(self, job_id: int) -> JobResult:
        process, receiver = self._running.pop(job_id)
        try:
            result: JobResult = receiver.recv()
        except EOFError:
            result = JobResult("crashed", f"exit code {process.exitcode}")
        process.join()
        receiver.close()
        return result


def _run_and_send(job: Job, sender: Connection) -> None:
    threading.Thread(target=stop_with_parent, daemon=True).start()
    sender.send(run_job(job))
