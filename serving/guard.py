"""The door of the server: who may come in, and how much they may bring. ASGI, in front of the application.

    | refused                                                        | status |
    |----------------------------------------------------------------|--------|
    | no key, or a wrong one (all but the page and /health)          | 401    |
    | a name of the host that is not this machine's (no key is set)  | 403    |
    | a web page of another origin (no key is set)                   | 403    |
    | a body larger than allowed, told beforehand or found out       | 413    |
    | a body that does not come                                      | 408    |

A client that left before its answer is counted as 499; a request whose handler raised, as the 500 it is answered with.
Host and origin matter where no key does: see `origins`.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

from serving.errors import CLIENT_GONE, RequestError, closing_answer
from serving.metrics import Metrics
from serving.origins import refusal

__all__ = ["Guard"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_OPEN = ("/", "/health", "/health/live", "/health/ready")
_COUNTED = ("/v1/completions", "/v1/chat/completions", "/v1/models")
_LINGER_S = 2.0  # how long a refused request's body is still taken in


class Guard:
    """Lets a request through to `app`, with its body read.

    Args:
        app: what is behind the door.
        metrics: told of every request.
        api_key: None lets everybody in.
        max_body: bytes.
        loopback: whether the server is bound to the loopback interface.
        body_timeout_s: seconds in which a body must have come.
    """

    def __init__(
        self,
        app: App,
        *,
        metrics: Metrics,
        api_key: str | None,
        max_body: int,
        loopback: bool,
        body_timeout_s: float = 30.0,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._key = None if api_key is None else api_key.encode()
        self._max_body = max_body
        self._loopback = loopback
        self._timeout_s = body_timeout_s

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._counted(scope["path"], send) as counting:
            await self._let_in(scope, receive, counting)

    async def _let_in(self, scope: MutableMapping[str, Any], arriving: Receive, send: Send) -> None:
        receive = _Incoming(arriving)
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            self._check(scope, headers)
            async with asyncio.timeout(self._timeout_s):
                body = await self._body(headers, receive)
        except TimeoutError:
            await _refuse(receive, send, RequestError(408, "the request's body did not come in time", code="timeout"))
        except RequestError as exc:
            await _refuse(receive, send, exc)
        else:
            if body is not None:
                await self._app(scope, _replaying(body, receive), send)
            else:  # nobody reads this; the metrics do
                await send({"type": "http.response.start", "status": CLIENT_GONE, "headers": []})
                await send({"type": "http.response.body", "body": b""})

    @contextmanager
    def _counted(self, path: str, send: Send) -> Iterator[Send]:
        """Count a request with its status, and its time until all of it is out."""
        endpoint = path if path in _COUNTED else "other"
        since, status = time.monotonic(), "500"  # where no response comes through here, one is sent outside

        async def counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            yield counting
        finally:
            self._metrics.requests.labels(endpoint, status).inc()
            self._metrics.request_seconds.labels(endpoint).observe(time.monotonic() - since)

    def _check(self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> None:
        if self._key is None:
            if self._loopback and (reason := refusal(scope)):
                raise RequestError(403, f"{reason}; set an API key to have other names and pages")
        elif scope["path"] not in _OPEN:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._key):
                raise RequestError(
                    401, "wrong or missing API key; send 'Authorization: Bearer KEY'", code="invalid_api_key"
                )

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Return the body; None if the client has gone."""
        told = headers.get(b"content-length", b"0")
        if told.isdigit() and int(told) > self._max_body:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body:
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> RequestError:
        return RequestError(413, f"a request may have {self._max_body:,} bytes; send less", code="request_too_large")


class _Incoming:
    """Messages from the client; `over` once its body has ended, or it has gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.over = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.over = not message.get("more_body", False)
        return message


def _replaying(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(receive: _Incoming, send: Send, error: RequestError) -> None:
    """Answer at once, then take the rest of the body in before the connection is closed.

    A connection closed over bytes nobody read is reset, and the client may lose the answer it was sent.
    """
    headers, content = closing_answer(error)
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while not receive.over:
                await receive()
    await send({"type": "http.response.body", "body": b""})
