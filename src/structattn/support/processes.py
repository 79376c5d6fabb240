"""Worker processes that map a function over items; results come in the order of the items."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, cycle, islice
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, Final, NamedTuple, TypeVar

from structattn.support.errors import UsageError

_FEWEST_ITEMS: Final = 4  # for fewer, starting processes takes longer than the work
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _Next(NamedTuple):
    """The next item of an iterator, or the error that ended it."""

    item: Any
    error: Exception | None = None


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_context() -> ForkServerContext | SpawnContext:
    """Return how new processes start: forked from a server, which is fast and copies no threads; spawned on Windows."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


class WorkerPool:
    """Processes that compute ``function(item)``; with one worker, or for few items, this process computes it.

    Results do not depend on the number of workers. What a worker fails to compute, because the function raises or the
    worker is killed, is computed again by this process, which raises the function's error after the results of all
    items before it.

    Args:
        num_workers: the number of processes.

    Raises:
        UsageError: the number is below 1.
    """

    def __init__(self, num_workers: int) -> None:
        if num_workers < 1:
            raise UsageError(f"workers is {num_workers}; expected at least 1")
        self._num_workers = num_workers
        self._connections: list[Connection] = []

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[tuple[_Item, _Result]]:
        """Yield each item with its result.

        Args:
            function: a function of a module, or a ``partial`` of one; its arguments and results are pickled.
            items: what the function is applied to, read ahead by at most four items or one for each worker; an error of
                this iterator is raised after the results of all items before it.
        """
        steps = _steps(items)
        first = list(islice(steps, 0 if self._num_workers == 1 else _FEWEST_ITEMS))
        steps = chain(first, steps)
        if len(first) < _FEWEST_ITEMS:
            for item, error in steps:
                yield item, _result(function, item, error)
        else:
            self._start()
            yield from self._map(function, steps)

    def close(self) -> None:
        """End the processes; each ends when its connection does."""
        for connection in self._connections:
            connection.close()
        self._connections = []

    def _map(self, function: Callable[[_Item], _Result], steps: Iterator[_Next]) -> Iterator[tuple[_Item, _Result]]:
        """Give items to the workers in turn; a worker gets its next item as soon as its result is received."""
        pending = deque[tuple[Connection, _Next]]()
        workers = cycle(self._connections)

        def send(count: int) -> None:
            for step, worker in zip(islice(steps, count), workers, strict=False):
                if step.error is None:
                    _send(worker, (function, step.item))
                pending.append((worker, step))

        send(len(self._connections))
        try:
            while pending:
                worker, (item, error) = pending.popleft()
                computed, result = (False, None) if error is not None else _receive(worker)
                send(1)
                yield item, result if computed else _result(function, item, error)
        finally:  # nothing is left for the next call if the caller stops early
            for worker, step in pending:
                if step.error is None:
                    _receive(worker)

    def _start(self) -> None:
        if self._connections:
            return
        context = start_context()
        context.set_forkserver_preload([__name__, "numpy"])
        for _ in range(self._num_workers):
            ours, theirs = context.Pipe()
            context.Process(target=_serve, args=(theirs,), daemon=True).start()
            theirs.close()
            self._connections.append(ours)


@contextmanager
def worker_pool(num_workers: int) -> Iterator[WorkerPool]:
    """Provide a ``WorkerPool`` and end its processes afterwards."""
    pool = WorkerPool(num_workers)
    try:
        yield pool
    finally:
        pool.close()


def _steps(items: Iterable[_Item]) -> Iterator[_Next]:
    try:
        for item in items:
            yield _Next(item)
    except Exception as error:  # raised by _result
        yield _Next(None, error)


def _result(function: Callable[[_Item], _Result], item: _Item, error: Exception | None) -> _Result:
    if error is not None:
        raise error
    return function(item)


def _send(worker: Connection, message: object) -> None:
    with suppress(OSError):  # the worker was killed; receiving from it fails, too
        worker.send(message)


def _receive(worker: Connection) -> tuple[bool, Any]:
    try:
        computed, result = worker.recv()
    except (EOFError, OSError):
        return False, None
    return computed, result


def _serve(connection: Connection) -> None:
    """Compute what the connection asks for until it is closed, as it is when the other process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C interrupts the other process, which then ends this one
    with suppress(EOFError, OSError):
        while True:
            function, item = connection.recv()
            try:
                answer = True, function(item)
            except Exception:  # the other process computes it again, and so raises it
                answer = False, None
            connection.send(answer)
