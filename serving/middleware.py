"""ASGI middleware in front of the application: checks keys, origins and the size of requests, and counts requests.

Refused are a missing or wrong key (401, but for the page and /health), or without a key names and pages that are not
this machine's (403, see `origins`), a body that is too large (413) or does not arrive in time (408). A client that
disconnects before its response is counted as 499, a request whose handler raises as 500.
"""

import asyncio
import hmac
import time
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import CLIENT_GONE, RequestError
from serving.metrics import Metrics
from serving.origins import refusal
from serving.settings import ServerSettings
from toolformer_core.endpoints import is_loopback

_PATHS_WITHOUT_KEY = ("/", "/health", "/health/live", "/health/ready")
_PATHS_IN_METRICS = ("/v1/completions", "/v1/chat/completions", "/v1/models")
_LINGER_S = 2.0  # for this time the body of a refused request is still read


class RequestMiddleware:
    """Checks a request, reads its body, passes it on to `app`, and counts it with its status and time."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, settings: ServerSettings) -> None:
        self._app = app
        self._metrics = metrics
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        endpoint = scope["path"] if scope["path"] in _PATHS_IN_METRICS else "other"
        started, status = time.monotonic(), "500"  # if no response passes here, the outer application sends a 500

        async def counting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._handle(scope, receive, counting_send)
        finally:
            self._metrics.requests.labels(endpoint, status).inc()
            self._metrics.request_seconds.labels(endpoint).observe(time.monotonic() - started)

    async def _handle(self, scope: Scope, receive_raw: Receive, send: Send) -> None:
        receive = _Incoming(receive_raw)
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            self._check(scope, headers)
            async with asyncio.timeout(self._settings.body_timeout_s):
                body = await self._body(headers, receive)
        except TimeoutError:
            await _refuse(receive, send, RequestError(408, "the request's body did not arrive in time", code="timeout"))
        except RequestError as exc:
            await _refuse(receive, send, exc)
        else:
            if body is not None:
                await self._app(scope, _replaying(body, receive), send)
            else:  # nobody receives it, but the metrics count it
                await send({"type": "http.response.start", "status": CLIENT_GONE, "headers": []})
                await send({"type": "http.response.body", "body": b""})

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        if self._settings.api_key is None:
            if is_loopback(self._settings.host) and (reason := refusal(scope)):
                raise RequestError(403, f"{reason}; set an API key to allow other names and pages")
        elif scope["path"] not in _PATHS_WITHOUT_KEY:
            scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._settings.api_key.encode()):
                raise RequestError(
                    401, "wrong or missing API key; send 'Authorization: Bearer KEY'", code="invalid_api_key"
                )

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Return the body; None if the client has disconnected."""
        announced = headers.get(b"content-length", b"0")
        too_large = RequestError(
            413, f"a request may have at most {self._settings.max_body:,} bytes; send less", code="request_too_large"
        )
        if announced.isdigit() and int(announced) > self._settings.max_body:
            raise too_large
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._settings.max_body:
                raise too_large
            if not message.get("more_body", False):
                return b"".join(parts)


class _Incoming:
    """Messages from the client; `ended` is True once its body is complete, or it has disconnected."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.ended = not message.get("more_body", False)
        return message


def _replaying(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def _refuse(receive: _Incoming, send: Send, error: RequestError) -> None:
    """Respond at once, then read the rest of the body: closing a connection with unread bytes resets it."""
    challenge = {"www-authenticate": "Bearer"} if error.status == 401 else {}
    response = JSONResponse(error.body, error.status, {**error.headers, **challenge, "connection": "close"})
    await send({"type": "http.response.start", "status": error.status, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while not receive.ended:
                await receive()
    await send({"type": "http.response.body", "body": b""})
