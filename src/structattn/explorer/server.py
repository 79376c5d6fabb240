"""The explorer with a server: a page in which one types a text and sees what a run does, with interventions."""

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from threading import Event, Lock
from time import monotonic
from types import FrameType
from typing import Any

import anyio
import anyio.to_thread
import h11
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message
from torch.overrides import TorchFunctionMode
from uvicorn.protocols.http.h11_impl import H11Protocol

from structattn.explorer.interventions import ForcedAction, InterventionError, layers_by_side
from structattn.explorer.page import explorer_page
from structattn.explorer.recording import Recording, record
from structattn.explorer.recording_files import recording_to_json
from structattn.explorer.requests import (
    MAX_BYTES,
    BodyTooLargeError,
    Guard,
    RecordRequest,
    interventions_of,
    parse_request,
    refusal,
)
from structattn.loading.trained_run import TrainedRun
from structattn.support.errors import StructattnError, UsageError

ADDRESS = "127.0.0.1"  # of this computer, which others cannot reach
HEADER_SECONDS = 5  # to receive the headers of a request, or the rest of one that was refused
BODY_SECONDS = 10.0  # to receive its body
STOP_SECONDS = 1  # for answers that are being sent when the server is stopped
MAX_CONNECTIONS = 256
PER_MINUTE = 600  # recordings
MAX_WAITING = 8  # recordings, which are computed one after the other


class CancelledError(BaseException):
    """A recording that nobody waits for; no Exception, which might be taken for a fault of what is computed."""


class _Cancellable(TorchFunctionMode):
    """Within this context, the next function of torch in this thread after an event is set raises CancelledError.

    Those after it are called: they restore what was changed.
    """

    def __init__(self, *events: Event) -> None:
        super().__init__()
        self._events, self._cancelled = events, False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of torch."""
        if not self._cancelled and any(event.is_set() for event in self._events):
            self._cancelled = True
            raise CancelledError
        return func(*args, **(kwargs or {}))


class Recorder:
    """Records texts of a run, with so many depths of stacks, one at a time, in a thread."""

    def __init__(self, run: TrainedRun, depths: int) -> None:
        self._run, self._depths = run, depths
        self._threads, self._turn = anyio.CapacityLimiter(1), Lock()
        self._waiting = 0
        self._times: deque[float] = deque()
        self._stopped = Event()
        self.busy = False

    @property
    def refusal(self) -> str | None:
        """Why the model takes no interventions; None: it takes them."""
        try:
            layers_by_side(self._run.model)
        except UsageError as error:
            return str(error)
        return None

    def admit(self) -> bool:
        """Count a request and return True, or return False if there are too many."""
        now = monotonic()
        while self._times and self._times[0] < now - 60:
            self._times.popleft()
        if self._waiting >= MAX_WAITING or len(self._times) >= PER_MINUTE:
            return False
        self._times.append(now)
        return True

    async def record(self, request: RecordRequest, receive: Callable[[], Awaitable[Message]]) -> Recording | None:
        """Record a text or an example; raises what ``record`` raises. None: the client has left, or the server stops.

        Args:
            request: of the client.
            receive: its messages after the request, of which the next is that it has left.
        """
        left, recording, failure = Event(), None, None

        async def cancel_when_left() -> None:
            await receive()
            left.set()
            group.cancel_scope.cancel()

        async def cancel_when_stopped() -> None:
            while not self._stopped.is_set():
                await anyio.sleep(0.1)
            group.cancel_scope.cancel()

        self._waiting += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(cancel_when_left)
                group.start_soon(cancel_when_stopped)
                try:
                    recording = await anyio.to_thread.run_sync(
                        self._record_unless, left, request, limiter=self._threads, abandon_on_cancel=True
                    )
                except StructattnError as error:  # which the group would wrap
                    failure = error
                group.cancel_scope.cancel()
        finally:
            self._waiting -= 1
        if failure is not None:
            raise failure
        return recording

    def stop(self) -> None:
        """Cancel all recordings."""
        self._stopped.set()

    def _record_unless(self, left: Event, request: RecordRequest) -> Recording | None:
        """Record when the turn of this thread has come; what was cancelled ends at its next function of torch."""
        with self._turn:
            self.busy = True
            try:
                with torch.set_grad_enabled(torch.is_grad_enabled()), _Cancellable(left, self._stopped):
                    return self.record_now(request)  # what is cancelled may be the end of its ``no_grad``
            except CancelledError:
                return None
            finally:
                self.busy = False

    def record_now(self, request: RecordRequest) -> Recording:
        """Record in this thread."""
        interventions = interventions_of(request)
        if request.text is None:
            assert request.example is not None, "a checked request"
            chosen = [request.example]
            return record(
                self._run, examples=chosen, split=request.split, depths=self._depths, interventions=interventions
            )
        targets = None if request.target is None else [request.target]
        return record(self._run, [request.text], targets, depths=self._depths, interventions=interventions)


class _Protocol(H11Protocol):
    """Closes connections on which headers do not arrive in time, nor the rest of a request that has been answered."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream of TCP
        """Start to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Start to wait for the next request."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEADER_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE:
            self.transport.close()


class _Server(uvicorn.Server):
    """A server whose end by a signal is not an interruption: it has nothing left to do."""

    def __init__(self, config: uvicorn.Config, recorder: Recorder) -> None:
        super().__init__(config)
        self._recorder = recorder

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._recorder.stop()
        self.force_exit = self.should_exit  # at the second signal
        self.should_exit = True


def _as_on_the_page(error: StructattnError) -> str:
    """Return the message, with the place of an intervention as the page names it, counted from 1."""
    if not isinstance(error, InterventionError):
        return str(error)
    where = error.intervention
    token = f", {where.action} at {where.position + 1}" if isinstance(where, ForcedAction) else ""
    return f"{f'{where.side} ' if where.side else ''}layer {where.layer + 1}{token}: {error.reason}"


def explorer_app(recorder: Recorder, first: RecordRequest, token: str, port: int) -> Guard:
    """Return the server as an ASGI application; see ``serve_explorer`` for the arguments.

    ``GET /?token=…`` is the page. ``POST /record`` has a ``RecordRequest`` as JSON and is answered by a recording, or
    by an object with an ``error``.

    Raises:
        StructattnError: the first text or example cannot be recorded.
    """
    live = {"token": token, "request": first.model_dump(exclude_defaults=True), "refusal": recorder.refusal}
    page = explorer_page([recording_to_json(recorder.record_now(first))], live)

    async def send_page(request: Request) -> Response:
        return Response(page, media_type="text/html; charset=utf-8")

    async def send_recording(request: Request) -> Response:
        try:
            with anyio.fail_after(BODY_SECONDS):
                body = await request.body()
        except TimeoutError:
            return refusal(408, f"the body did not arrive within {BODY_SECONDS:.0f} s")
        except BodyTooLargeError:
            return refusal(413, f"the body has more than {MAX_BYTES} bytes")
        if not recorder.admit():
            return refusal(429, "too many requests; try again in a minute")
        try:
            recording = await recorder.record(parse_request(body), request.receive)
        except StructattnError as error:
            return refusal(422, _as_on_the_page(error))
        if recording is None:
            return refusal(503, "the recording was cancelled")
        return JSONResponse(recording_to_json(recording))

    async def failed(request: Request, error: Exception) -> Response:
        return refusal(500, "the server failed; its log says why")

    routes = [Route("/", send_page), Route("/record", send_recording, methods=["POST"])]
    return Guard(Starlette(routes=routes, exception_handlers={Exception: failed}), token, port)


def serve_explorer(
    run: TrainedRun, first: RecordRequest, token: str, port: int, depths: int, on_start: Callable[[str], None]
) -> None:
    """Serve the explorer of a run on 127.0.0.1 until SIGINT, SIGTERM or SIGHUP.

    Where a recording does not end soon after the signal, the process does.

    Args:
        run: the run.
        first: what the page shows at first.
        token: of the requests; a secret.
        port: 0: one that is free.
        depths: of stacks.
        on_start: called with the link when the server listens.

    Raises:
        StructattnError: the first text or example cannot be recorded.
        OSError: the port is not free.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        port = listener.getsockname()[1]
        recorder = Recorder(run, depths)
        config = uvicorn.Config(
            explorer_app(recorder, first, token, port),
            log_level="warning",
            ws="none",
            http=_Protocol,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=5,
            h11_max_incomplete_event_size=16 * 1024,
            lifespan="off",
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        listener.listen()
        on_start(f"http://{ADDRESS}:{port}/?token={token}")
        server = _Server(config, recorder)
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # a closed terminal
            signal.signal(signal.SIGHUP, server.handle_exit)
        server.run(sockets=[listener])
    if recorder.busy:  # in one long function of torch, which no exception ends, and Python would wait for its thread
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
