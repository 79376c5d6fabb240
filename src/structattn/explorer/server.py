"""The explorer with a server: a page in which one types a text and sees what a run does, with interventions."""

import socket
from collections import deque
from collections.abc import Callable
from time import monotonic
from types import FrameType

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

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
from structattn.models import EncoderDecoder
from structattn.support.errors import StructattnError

ADDRESS = "127.0.0.1"  # of this computer, which others cannot reach
BODY_SECONDS = 10.0  # to receive the body of a request
PER_MINUTE = 600  # recordings
MAX_WAITING = 8  # recordings, which are computed one after the other


class Recorder:
    """Records texts, one at a time, in a thread.

    Args:
        run: the run.
        depths: of stacks.
    """

    def __init__(self, run: TrainedRun, depths: int) -> None:
        self._run, self._depths = run, depths
        self._one = anyio.CapacityLimiter(1)
        self._waiting = 0
        self._times: deque[float] = deque()

    def admit(self) -> bool:
        """Count a request and return True, or return False if there are too many."""
        now = monotonic()
        while self._times and self._times[0] < now - 60:
            self._times.popleft()
        if self._waiting >= MAX_WAITING or len(self._times) >= PER_MINUTE:
            return False
        self._times.append(now)
        return True

    async def record(self, request: RecordRequest) -> Recording:
        """Record a text or an example; raises what ``record`` raises."""
        self._waiting += 1
        try:
            return await anyio.to_thread.run_sync(self.record_now, request, limiter=self._one)
        finally:
            self._waiting -= 1

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
        if targets is None and interventions and isinstance(self._run.model, EncoderDecoder):
            targets = [self._run.translate([request.text])[0][0].text]  # so that both can be compared
        return record(self._run, [request.text], targets, depths=self._depths, interventions=interventions)


class _Server(uvicorn.Server):
    """A server whose end by a signal is not an interruption: it has nothing left to do."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # at the second signal
        self.should_exit = True


def explorer_app(run: TrainedRun, first: RecordRequest, token: str, port: int, depths: int) -> Guard:
    """Return the server as an ASGI application.

    ``GET /?token=…`` is the page. ``POST /record`` has a ``RecordRequest`` as JSON and is answered by a recording, or
    by an object with an ``error``.

    Args:
        run: the run.
        first: what the page shows at first.
        token: of the requests.
        port: of the server.
        depths: of stacks.

    Raises:
        StructattnError: the first text or example cannot be recorded.
    """
    recorder = Recorder(run, depths)
    live = {"token": token, "request": first.model_dump(exclude_defaults=True)}
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
            found = await recorder.record(parse_request(body))
        except StructattnError as error:
            return refusal(422, str(error))
        return JSONResponse(recording_to_json(found))

    async def failed(request: Request, error: Exception) -> Response:
        return refusal(500, "the server failed; its log says why")

    routes = [Route("/", send_page), Route("/record", send_recording, methods=["POST"])]
    return Guard(Starlette(routes=routes, exception_handlers={Exception: failed}), token, port)


def serve_explorer(
    run: TrainedRun, first: RecordRequest, token: str, port: int, depths: int, on_start: Callable[[str], None]
) -> None:
    """Serve the explorer of a run on 127.0.0.1 until SIGINT or SIGTERM.

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
        config = uvicorn.Config(
            explorer_app(run, first, token, port, depths),
            log_level="warning",
            ws="none",
            http="h11",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=32,
            timeout_keep_alive=5,
            h11_max_incomplete_event_size=16 * 1024,
            lifespan="off",
        )
        listener.listen()
        on_start(f"http://{ADDRESS}:{port}/?token={token}")
        _Server(config).run(sockets=[listener])
