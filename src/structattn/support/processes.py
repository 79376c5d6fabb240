"""Worker processes that map a function over items; results come in the order of the items."""

import atexit
import math
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain, islice
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.util import get_temp_dir
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from structattn.support.errors import UsageError

_FEWEST_ITEMS: Final = 4  # for fewer, starting processes takes longer than the work
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _Next(NamedTuple):
    """The next item of an iterator, or the error that ended it."""

    item: Any
    error: Exception | None = None


_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")


def available_cores() -> int:
    """Return the number of cores that this process may use: by its affinity, and by the quotas of its cgroups."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([cores, *(max(1, math.ceil(quota)) for quota in _quotas())])


def _quotas() -> Iterator[float]:
    """Yield the limits on CPU time of this process's cgroups and of those above them, in cores."""
    lines = _OWN_CGROUPS.read_text().splitlines() if _OWN_CGROUPS.exists() else []
    for line in lines:
        _, controllers, path = line.split(":", maxsplit=2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        hierarchy = _CGROUPS / "cpu" if controllers else _CGROUPS  # version 1, 2
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        own = PurePosixPath(path.lstrip("/"))
        for folder in (own, *own.parents):
            with suppress(OSError, ValueError):  # none there; "max"
                quota, period = " ".join((hierarchy / folder / name).read_text() for name in names).split()
                if int(quota) > 0:  # -1: no limit
                    yield int(quota) / int(period)


def start_context() -> ForkServerContext | SpawnContext:
    """Return how new processes start: forked from a server, which is fast and copies no threads; spawned on Windows."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


_FOLDER: Final = "STRUCTATTN_SERVER_FOLDER"
_LONGEST_PARENT: Final = 103 - len("/pymp-12345678/listener-12345678")  # a socket's name has 103 bytes on macOS


def _server_folder() -> str:
    """Return the folder of the server's socket: in /tmp if the name of TMPDIR is too long for it."""
    parent = tempfile.gettempdir()
    tempfile.tempdir = "/tmp" if len(os.fsencode(parent)) > _LONGEST_PARENT else parent
    try:
        return get_temp_dir()
    finally:
        tempfile.tempdir = parent


def start_server(*modules: str, blocked: Iterable[signal.Signals] = ()) -> ForkServerContext | SpawnContext:
    """Start the server that forks new processes, unless it runs, and return their context; see ``start_context``.

    Args:
        modules: that the server imports, so that its processes have them.
        blocked: signals that the server and its processes do not see: their parent passes them on, as SIGTERM. SIGHUP,
            which a terminal sends to all of them when it is closed, is always one.
    """
    context = start_context()
    if isinstance(context, SpawnContext):
        return context
    context.set_forkserver_preload([__name__, *modules])
    resource_tracker.ensure_running()  # if the server started it, these signals would be unblocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, *blocked})
    folder = _server_folder()
    if multiprocessing.parent_process() is None:  # a worker uses the folder of its parent
        os.environ[_FOLDER] = folder
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop(_FOLDER, None)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _remove_with_server(folder: str, server: int, client: int) -> None:
    """Remove the folder of the server's socket when the server ends because its client was killed."""
    if os.getpid() == server and os.getppid() != client:  # not one of its processes; the client has ended
        shutil.rmtree(folder, ignore_errors=True)


def _hide_interruption(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Show no traceback of Ctrl-C, which its client reports, while the server imports modules."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, where)


if _FOLDER in os.environ:
    sys.excepthook = _hide_interruption
    atexit.register(_remove_with_server, os.environ.pop(_FOLDER), os.getpid(), os.getppid())


def stop_with_parent() -> None:
    """Wait until the process that has started this one with ``multiprocessing`` has ended, then send SIGTERM to this.

    To be run in a thread: no process would receive the results.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


class WorkerPool:
    """Processes that compute ``function(item)``; with one worker, or for few items, this process computes it.

    Results do not depend on the number of workers. What a worker fails to compute, because the function raises or a
    worker is killed, is computed again by this process, which raises the function's error after the results of all
    items before it.

    Raises:
        UsageError: the number is below 1.
    """

    def __init__(self, num_workers: int) -> None:
        if num_workers < 1:
            raise UsageError(f"workers is {num_workers}; expected at least 1")
        self._num_workers = num_workers
        self._executor: ProcessPoolExecutor | None = None

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
            yield from self._map(function, steps)

    def close(self) -> None:
        """End the processes."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None

    def _map(self, function: Callable[[_Item], _Result], steps: Iterator[_Next]) -> Iterator[tuple[_Item, _Result]]:
        pending = deque[tuple[_Next, Future[Any] | None]]()

        def submit(count: int) -> None:
            pending.extend((step, self._submit(function, step)) for step in islice(steps, count))

        submit(self._num_workers)
        while pending:
            (item, error), future = pending.popleft()
            done = None if future is None or future.exception() is not None else future  # waits for the worker
            submit(1)
            yield item, _result(function, item, error) if done is None else done.result()

    def _submit(self, function: Callable[[_Item], _Result], step: _Next) -> Future[Any] | None:
        """Give an item to the workers; None if there is none, or all workers have ended because one was killed."""
        if self._executor is None:
            context = start_server("numpy")
            self._executor = ProcessPoolExecutor(self._num_workers, context, _start_worker)
        try:
            return None if step.error is not None else self._executor.submit(_compute, function, step.item)
        except BrokenExecutor:
            return None


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


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C interrupts the other process, which then ends this one
    threading.Thread(target=stop_with_parent, daemon=True).start()


def _compute(function: Callable[[_Item], _Result], item: _Item) -> _Result:
    """Compute an item; of an error only its kind is told, as not every error can be unpickled."""
    try:
        return function(item)
    except Exception as error:
        raise RuntimeError(type(error).__name__) from None
