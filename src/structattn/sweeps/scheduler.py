"""The scheduling loop of a sweep: keep an engine busy and restart jobs whose workers crash."""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from structattn.runs.folder import RunFolder
from structattn.runs.store import checkpoint_updates
from structattn.support.errors import StructattnError
from structattn.sweeps.worker import Job, JobResult

MAX_WITHOUT_PROGRESS = 5  # crashed, or interrupted, jobs in a row without a new checkpoint; the next would end likewise
MAX_REJECTIONS = 8  # in a row while no job runs; a minute and a half
POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 30.0

_logger = logging.getLogger(__name__)


class RejectedError(StructattnError):
    """An engine cannot start a job now; those that run go on. The message is the scheduler's own."""


class Engine(Protocol):
    """Runs jobs in parallel."""

    max_jobs: int
    """The number of jobs to run at once."""

    def start(self, job: Job) -> Hashable:
        """Start a job in its own worker and return a job id.

        Raises:
            RejectedError: it cannot be started now, say because a user may not submit more.
        """

    def wait(self, timeout: float) -> Sequence[tuple[Hashable, JobResult]]:
        """Return the ids and results of jobs that have ended, after waiting at most ``timeout`` seconds for one."""

    def close(self) -> None:
        """Stop all workers. Local workers save a checkpoint first; others resume from their last checkpoint."""


@dataclass
class SweepStatus:
    """The state of all jobs of a sweep.

    Args:
        waiting: jobs to start, in order.
        running: job id -> job.
        done: jobs that completed.
        failed: jobs that were given up, with the error message.
        delayed: (time on the monotonic clock, job) of jobs to start again at that time.
        counts_without_progress: (run folder, newest checkpoint, outcome) -> number of jobs that ended so.
        busy_counts: run folder -> how often another process held it.
        rejections: how many jobs the engine has rejected since it last started one, or since one ended.
        start_after: time on the monotonic clock before which no job is started.
        reported: the message of the last rejection that was logged.
    """

    waiting: deque[Job]
    running: dict[Hashable, Job] = field(default_factory=dict)
    done: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    delayed: list[tuple[float, Job]] = field(default_factory=list)
    counts_without_progress: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    busy_counts: Counter[str] = field(default_factory=Counter)
    rejections: int = 0
    start_after: float = 0.0
    reported: str = ""

    @property
    def num_jobs(self) -> int:
        """The number of jobs in any state."""
        return len(self.unfinished) + len(self.done) + len(self.failed)

    @property
    def unfinished(self) -> list[Job]:
        """The jobs that have neither completed nor failed."""
        return [*self.waiting, *self.running.values(), *(job for _, job in self.delayed)]


NextJobs = Callable[[SweepStatus, Job], Iterable[Job]]


def no_more_jobs(status: SweepStatus, job: Job) -> Iterable[Job]:
    """Return no jobs."""
    return ()


def run_jobs(
    engine: Engine,
    jobs: Iterable[Job],
    on_status: Callable[[SweepStatus], None] = lambda status: None,
    check: Callable[[], None] = lambda: None,
    next_jobs: NextJobs = no_more_jobs,
) -> SweepStatus:
    """Run all jobs until each has completed or failed.

    A job that is interrupted or whose worker crashes is restarted and resumes from its newest checkpoint; it fails
    after five interruptions or crashes at the same checkpoint. A job whose run folder is locked by another process is
    retried with exponential backoff, and so is one that the engine rejects.

    Args:
        engine: runs the jobs; it is closed at the end.
        jobs: the jobs, in the order in which they start.
        on_status: called at every poll with the current status.
        check: called at every poll; may raise to stop all jobs.
        next_jobs: called with the status and each job whose worker has ended; returns jobs to run next.

    Raises:
        StructattnError: no job is running, and the engine has rejected MAX_REJECTIONS in a row.
    """
    status = SweepStatus(deque(jobs))
    try:
        while status.waiting or status.running or status.delayed:
            check()
            now = time.monotonic()
            status.waiting.extend(job for due, job in status.delayed if due <= now)
            status.delayed = [(due, job) for due, job in status.delayed if due > now]
            _start_jobs(status, engine)
            for job_id, result in engine.wait(POLL_SECONDS):
                job = status.running.pop(job_id)
                status.rejections, status.start_after = 0, 0.0  # its end may have made room
                _record_result(status, job, result)
                # Before the jobs that wait: an interrupted sweep has whole cells rather than a rung of each.
                status.waiting.extendleft(reversed(list(next_jobs(status, job))))
            on_status(status)
    finally:
        engine.close()
    return status


def _start_jobs(status: SweepStatus, engine: Engine) -> None:
    """Start as many waiting jobs as the engine takes."""
    while status.waiting and len(status.running) < engine.max_jobs and status.start_after <= time.monotonic():
        job = status.waiting.popleft()
        try:
            status.running[engine.start(job)] = job
        except RejectedError as error:
            status.waiting.appendleft(job)
            _wait_after_rejection(status, str(error))
            return  # it would reject the next one, too
        status.rejections = 0


def _wait_after_rejection(status: SweepStatus, message: str) -> None:
    """Start no job for a while.

    Raises:
        StructattnError: no job is running, and it has rejected MAX_REJECTIONS in a row.
    """
    status.rejections += 1
    if not status.running and status.rejections >= MAX_REJECTIONS:
        raise StructattnError(f"no job is running, and none could be started in {MAX_REJECTIONS} tries: {message}")
    if message != status.reported:
        _logger.warning("a job cannot be started now and is tried again: %s", message)
        status.reported = message
    status.start_after = time.monotonic() + _backoff(status.rejections)


def _record_result(status: SweepStatus, job: Job, result: JobResult) -> None:
    if result.outcome == "done":
        status.done.append(job)
    elif result.outcome == "failed":
        status.failed.append((job, result.message))
    elif result.outcome in _WITHOUT_PROGRESS and _makes_no_progress(status, job, result):
        status.failed.append((job, f"{_WITHOUT_PROGRESS[result.outcome]}: {result.message}"))
    else:
        status.delayed.append((time.monotonic() + _retry_seconds(status, job, result), job))


_WITHOUT_PROGRESS = {
    "crashed": f"its worker crashed {MAX_WITHOUT_PROGRESS} times at the same checkpoint",
    "interrupted": (
        f"no progress in {MAX_WITHOUT_PROGRESS} jobs that were interrupted; their time limit may be too short"
    ),
}


def _makes_no_progress(status: SweepStatus, job: Job, result: JobResult) -> bool:
    newest = max(checkpoint_updates(RunFolder(job.run_dir).checkpoints), default=0)
    key = str(job.run_dir), newest, result.outcome
    status.counts_without_progress[key] += 1
    return status.counts_without_progress[key] >= MAX_WITHOUT_PROGRESS


def _retry_seconds(status: SweepStatus, job: Job, result: JobResult) -> float:
    """Exponential backoff while another process holds the run folder; no delay otherwise."""
    if result.outcome != "busy":
        return 0.0
    status.busy_counts[str(job.run_dir)] += 1
    return _backoff(status.busy_counts[str(job.run_dir)])


def _backoff(tries: int) -> float:
    """Return the seconds to wait after so many tries in a row: from RETRY_SECONDS, doubled, to MAX_RETRY_SECONDS."""
    doublings = min(tries - 1, 10)  # a float holds no power of 1024 tries
    return min(RETRY_SECONDS * 2.0**doublings, MAX_RETRY_SECONDS)
