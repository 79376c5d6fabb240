"""Start the processes of a run on this machine, as torchrun does, and end them together."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

import torch
from torch import distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # missing in its __all__

from structattn.settings.training import TrainingSettings
from structattn.support.errors import Interrupted, ReportedError, SettingsError, StructattnError
from structattn.support.processes import start_server, stop_with_parent
from structattn.training.distributed import LostProcessError
from structattn.training.run import stop_on_signals

SECONDS_TO_END = 10.0  # of the other processes, after one has failed; they are killed then
_POLL_SECONDS = 0.2
_NODE_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
_ValueT = TypeVar("_ValueT")


@dataclass(frozen=True)
class _Result:
    """What a process returned, or the class and arguments of the error that it raised."""

    value: Any = None
    error: type[StructattnError] | None = None
    arguments: tuple[Any, ...] = ()


def run_processes(function: Callable[[], _ValueT], settings: TrainingSettings) -> _ValueT:
    """Call a function in ``devices`` new processes that are connected, and with those of the other machines.

    SIGTERM, SIGINT and SIGHUP are passed on to the processes, as SIGTERM. If one fails, the others end within
    ``SECONDS_TO_END``.

    Args:
        function: the same in all processes; can be pickled.
        settings: the numbers of processes and machines.

    Returns:
        The result of the first process of this machine.

    Raises:
        Interrupted: a signal arrived.
        LostProcessError: a process was killed.
        StructattnError: the error of the first process that failed.
        SettingsError: there are several machines, and a variable of the environment is missing or invalid, the port
            of the first one is not free, or it does not answer within 10 minutes; or the system is Windows.
    """
    if not hasattr(signal, "pthread_sigmask"):
        raise SettingsError("training.devices: several processes cannot be started on Windows; expected 1")
    node, address, port = _meeting_point(settings.nodes, os.environ)
    with stop_on_signals() as stop:
        store = _store(address, port, is_first=node == 0)
        size = settings.devices * settings.nodes
        group = {"MASTER_ADDR": address, "MASTER_PORT": str(store.port), "WORLD_SIZE": str(size)}
        group |= {"TORCHELASTIC_USE_AGENT_STORE": str(True), "LOCAL_WORLD_SIZE": str(settings.devices)}
        context = start_server(__name__, blocked=[signal.SIGINT])
        started = []
        for local in range(settings.devices):
            place = {"RANK": str(node * settings.devices + local), "LOCAL_RANK": str(local)}
            started.append(_start(context, function, group | place))
        processes = [process for process, _ in started]
        _wait_for(processes, lambda: stop.number)
        if stop.number and any(process.exitcode == -signal.SIGTERM for process in processes):
            raise Interrupted("interrupted before training began; run the same command again")
        return cast(_ValueT, _value([_result(*each) for each in started], processes))


def _meeting_point(nodes: int, environment: Mapping[str, str]) -> tuple[int, str, int]:
    """Return the number of this machine, and the address and port of the first one; port 0: any."""
    if nodes == 1:
        return 0, "127.0.0.1", 0
    address, port, node = (environment.get(name, "") for name in _NODE_VARIABLES)
    fits = address and port.isdecimal() and 0 < int(port) < 65_536 and node.isdecimal() and int(node) < nodes
    if not fits:
        given = ", ".join(f"{name}={environment.get(name, '')}" for name in _NODE_VARIABLES)
        raise SettingsError(
            f"training.nodes: {nodes} machines need the address and a free port of the first one in MASTER_ADDR and "
            f"MASTER_PORT, and the number of each, from 0 to {nodes - 1}, in NODE_RANK; the environment has {given}"
        )
    return int(node), address, int(port)


def _store(address: str, port: int, *, is_first: bool) -> TCPStore:
    """Open the store of the first machine, or connect to it."""
    try:
        return TCPStore(address, port, is_master=is_first, wait_for_workers=False, timeout=timedelta(minutes=10))
    except dist.DistError as error:
        problem = "cannot listen at this port" if is_first else "cannot connect to the first machine"
        raise SettingsError(
            f"training.nodes: MASTER_ADDR={address}, MASTER_PORT={port}: {problem}: {str(error).splitlines()[0]}"
        ) from None


def _start(
    context: ForkServerContext | SpawnContext, function: Callable[[], object], environment: dict[str, str]
) -> tuple[BaseProcess, Connection]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(function, environment, sender))
    process.start()
    sender.close()
    return process, receiver


def _call(function: Callable[[], object], environment: dict[str, str], sender: Connection) -> None:
    """Call the function in a new process, with a share of the cores, and send its result to the parent."""
    threading.Thread(target=stop_with_parent, daemon=True).start()
    os.environ.update(environment)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // int(environment["LOCAL_WORLD_SIZE"])))
    try:
        result, exit_code = _Result(function()), 0
    except StructattnError as error:
        result, exit_code = _Result(error=type(error), arguments=error.args), error.exit_code
    with suppress(BrokenPipeError):  # the parent was killed
        sender.send(result)
    raise SystemExit(exit_code)


def _wait_for(processes: Sequence[BaseProcess], signal_number: Callable[[], int]) -> None:
    """Wait until all processes have ended; pass on a signal, and kill those that remain after one has failed."""
    failed_at, passed_on = None, False
    while running := [process for process in processes if process.exitcode is None]:
        wait([process.sentinel for process in running], _POLL_SECONDS)
        if signal_number() and not passed_on:
            passed_on = True
            _send(running, signal.SIGTERM)
        if failed_at is None and any(process.exitcode for process in processes):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > SECONDS_TO_END:
            _send(running, signal.SIGKILL)


def _send(processes: Sequence[BaseProcess], number: signal.Signals) -> None:
    for process in processes:
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, number)


def _result(process: BaseProcess, receiver: Connection) -> _Result | None:
    """Return what a process that has ended sent; None if it was killed or had an unexpected error."""
    try:
        result: _Result = receiver.recv()
    except EOFError:
        return None
    finally:
        receiver.close()
        process.join()
    return result


def _value(results: Sequence[_Result | None], processes: Sequence[BaseProcess]) -> object:
    """Return the value of the first process, or raise the error that made the processes fail."""
    errors = [result for result in results if result is not None and result.error is not None]
    errors.sort(key=lambda result: (result.error is LostProcessError, result.error is ReportedError))
    for result, process in zip(results, processes, strict=True):
        if result is None and (not errors or errors[0].error in (LostProcessError, ReportedError)):
            raise LostProcessError(_ended(processes.index(process), process.exitcode))
    if errors:
        raise _rebuilt(errors[0])
    return results[0].value if results[0] is not None else None


def _ended(number: int, exit_code: int | None) -> str:
    reason = f"exit code {exit_code}" if exit_code is None or exit_code >= 0 else signal.Signals(-exit_code).name
    return f"process {number} of the run ended unexpectedly ({reason}), and so did the others; resume to continue"


def _rebuilt(result: _Result) -> StructattnError:
    assert result.error is not None
    error: StructattnError = result.error.__new__(result.error, *result.arguments)  # __init__ may take other arguments
    return error
