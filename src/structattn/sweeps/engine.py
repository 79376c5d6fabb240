"""What runs jobs, and the loop that keeps it busy until all are done, whatever dies."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from structattn.runs.folder import RunFolder
from structattn.runs.store import checkpoint_updates
from structattn.sweeps.work import Ending, Job

MOST_DEATHS = 5  # in a row without a new checkpoint: then the job itself is what kills its workers
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BEFORE_ASKING_AGAIN = 1.0
MOST_SECONDS_TO_WAIT = 30.0


class Engine(Protocol):
    """A place where jobs run side by side."""

    slots: int
    """How many jobs at once are worth while."""

    def start(self, job: Job) -> int:
        """Start a job in a worker of its own and give it a number."""

    def finished(self, seconds: float) -> list[tuple[int, Ending]]:
        """The numbers of jobs that have come to an end, waiting for one for so long at most."""

    def close(self) -> None:
        """Stop all workers: those on this machine save a checkpoint first; others may go on from their last one."""


@dataclass
class Standing:
    """How far a sweep is: which jobs are running, done, and given up with which message."""

    waiting: deque[Job]
    running: dict[int, Job] = field(default_factory=dict)
    done: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    deaths: Counter[tuple[str, int]] = field(default_factory=Counter)
    busy: Counter[str] = field(default_factory=Counter)
    later: list[tuple[float, Job]] = field(default_factory=list)


def run_all(
    engine: Engine,
    jobs: Iterable[Job],
    watch: Callable[[Standing], None] = lambda standing: None,
    check: Callable[[], None] = lambda: None,
) -> Standing:
    """Run all jobs to their end, each to its end exactly once in effect.

    A job whose worker dies is started again and goes on at its newest checkpoint; it is given up after five deaths at
    one checkpoint. A job that another process is at work on is asked for again.

    Args:
        engine: where they run; it is closed in the end.
        jobs: what to run, in this order.
        watch: called often, with how far things are.
        check: called often; may raise to end the whole.
    """
    standing = Standing(deque(jobs))
    try:
        while standing.waiting or standing.running or standing.later:
            check()
            _take_up_again(standing)
            while standing.waiting and len(standing.running) < engine.slots:
                job = standing.waiting.popleft()
                standing.running[engine.start(job)] = job
            for number, ending in engine.finished(SECONDS_BETWEEN_LOOKS):
                _account(standing, standing.running.pop(number), ending)
            watch(standing)
    finally:
        engine.close()
    return standing


def _take_up_again(standing: Standing) -> None:
    now = time.monotonic()
    standing.waiting.extend(job for due, job in standing.later if due <= now)
    standing.later = [(due, job) for due, job in standing.later if due > now]


def _account(standing: Standing, job: Job, ending: Ending) -> None:
    if ending.kind == "done":
        standing.done.append(job)
    elif ending.kind == "failed":
        standing.failed.append((job, ending.message))
    elif ending.kind == "killed" and _dies_again_and_again(standing, job):
        standing.failed.append((job, f"its worker died {MOST_DEATHS} times at one checkpoint: {ending.message}"))
    else:
        standing.later.append((time.monotonic() + _seconds_to_wait(standing, job, ending), job))


def _dies_again_and_again(standing: Standing, job: Job) -> bool:
    newest = max(checkpoint_updates(RunFolder(job.folder).checkpoints), default=0)
    standing.deaths[str(job.folder), newest] += 1
    return standing.deaths[str(job.folder), newest] >= MOST_DEATHS


def _seconds_to_wait(standing: Standing, job: Job, ending: Ending) -> float:
    """Before a job is started again: none, or, while others hold what it needs, longer and longer."""
    if ending.kind != "busy":
        return 0.0
    standing.busy[str(job.folder)] += 1
    return float(min(SECONDS_BEFORE_ASKING_AGAIN * 2 ** (standing.busy[str(job.folder)] - 1), MOST_SECONDS_TO_WAIT))
