"""What a request to the explorer's server must have before anything is computed for it.

The server listens on this computer only, but every web page that its user visits can send requests there. Their Host or
Origin gives such requests away: Host is the name that a page was loaded from, also after that name was made to point to
127.0.0.1, and Origin is the page that sends the request. The token is known to the page of the server alone.
"""

import hmac
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import Headers, QueryParams
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from structattn.explorer.interventions import ForcedAction, HeadOff, Intervention, SublayerOff
from structattn.settings.prepare import Split
from structattn.support.errors import UsageError
from structattn.support.validation import first_problem
from structattn.tasks.loaded import Side

MAX_BYTES = 256 * 1024  # of a request's body
TOKEN_HEADER = "x-structattn-token"  # the name of a header

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def refusal(status: int, message: str) -> Response:
    """Return an answer that says why there is no other."""
    return JSONResponse({"error": message}, status_code=status)


class Guard:
    """Passes on the requests of the server's own page, and refuses all others.

    Args:
        token: what the page has in its address, and its requests in the header ``X-Structattn-Token``.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no other protocol is spoken here: the server closes the connection
        answer = self._refuse(scope)
        if answer is None:
            await self._app(scope, _limited(receive), _with_headers(send))
        else:
            await answer(scope, receive, _with_headers(send))

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            return refusal(421, "the header Host names another server")
        origins = headers.getlist("origin")
        if origins and origins not in [[f"http://{host}"] for host in self._hosts]:
            return refusal(403, "the request comes from another page")
        if not self._has_token(scope, headers):
            return refusal(403, "the token is missing or wrong; open the link that the command has printed")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > MAX_BYTES:
            return refusal(413, f"the body has {length[:12]} bytes; expected at most {MAX_BYTES}")
        if scope["method"] == "POST" and headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return refusal(415, "expected application/json")
        return None

    def _has_token(self, scope: Scope, headers: Headers) -> bool:
        given: Sequence[str] = headers.getlist(TOKEN_HEADER)
        if scope["method"] in ("GET", "HEAD"):
            given = QueryParams(scope.get("query_string", b"")).getlist("token")
        return len(given) == 1 and hmac.compare_digest(given[0].encode(errors="replace"), self._token)


class BodyTooLargeError(Exception):
    """A body without a length has more bytes than are read."""


def _limited(receive: Receive) -> Receive:
    """Read at most ``MAX_BYTES`` of a body."""
    total = 0

    async def limited() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BYTES:
            raise BodyTooLargeError
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", []),
                *((name.encode(), value.encode()) for name, value in HEADERS.items()),
            ]
        await send(message)

    return with_headers


MAX_CHARACTERS = 20_000  # of a text; recordings have at most 1,024 tokens
MAX_INTERVENTIONS = 64
_MAX_INDEX = 1 << 20

Index = Annotated[int, Field(ge=0, le=_MAX_INDEX)]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class HeadOffRequest(_Request):
    """The fields of ``HeadOff``."""

    kind: Literal["head_off"]
    layer: Index
    head: Index
    sublayer: Literal["attention", "cross"] = "attention"
    side: Side | None = None


class SublayerOffRequest(_Request):
    """The fields of ``SublayerOff``."""

    kind: Literal["sublayer_off"]
    layer: Index
    sublayer: Literal["attention", "cross", "feedforward", "stack"] = "attention"
    side: Side | None = None


class ForcedActionRequest(_Request):
    """The fields of ``ForcedAction``."""

    kind: Literal["forced_action"]
    layer: Index
    position: Index
    action: Annotated[str, Field(max_length=32)]
    sublayer: Literal["attention", "stack"] = "attention"
    side: Side | None = None


class RecordRequest(_Request):
    """A text or an example of a split, and interventions, which all apply; a target that is None is searched for."""

    text: Annotated[str, Field(max_length=MAX_CHARACTERS)] | None = None
    target: Annotated[str, Field(max_length=MAX_CHARACTERS)] | None = None
    example: Index | None = None
    split: Split = "test"
    interventions: Annotated[
        list[Annotated[HeadOffRequest | SublayerOffRequest | ForcedActionRequest, Field(discriminator="kind")]],
        Field(max_length=MAX_INTERVENTIONS),
    ] = []

    @model_validator(mode="after")
    def _check_text(self) -> Self:
        if (self.text is None) == (self.example is None):
            raise ValueError("expected either a text or an example")
        if self.target is not None and self.text is None:
            raise ValueError("target: an example has its own; expected one with a text only")
        return self


def parse_request(body: bytes) -> RecordRequest:
    """Return a request from its JSON.

    Raises:
        UsageError: it is not JSON, or a field is missing, unknown or invalid; the message names the first one.
    """
    try:
        return RecordRequest.model_validate_json(body)
    except ValidationError as error:
        raise UsageError(first_problem(error, "the request")) from None


_INTERVENTIONS = {HeadOffRequest: HeadOff, SublayerOffRequest: SublayerOff, ForcedActionRequest: ForcedAction}


def interventions_of(request: RecordRequest) -> Sequence[Intervention]:
    """Return the interventions of a request."""
    return [_INTERVENTIONS[type(each)](**each.model_dump(exclude={"kind"})) for each in request.interventions]
