"""ASGI middleware that lets a browser use a local server only from the server's own pages, under its own names.

A web page can send requests to 127.0.0.1; by giving its own name that address (DNS rebinding) it can read the
responses, too. Browsers send the page in `Origin` and the name in `Host`; other programs send no Origin.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_PORTS = {"http": "80", "https": "443"}
_MAX_SHOWN = 100  # characters of a header that a message repeats


def origin_of(url: str) -> str | None:
    """Return the origin of a URL as browsers write it, `https://name:8443`; None if it is not an HTTP URL."""
    try:
        parts = urlsplit(url.strip().lower())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        return None
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{name}" + (f":{port}" if port is not None and str(port) != _PORTS[parts.scheme] else "")


def refusal(scope: Scope, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> str | None:
    """Return in one line why a request (or a websocket's) is refused (403); None if it is accepted.

    Refused are a Host that is neither a loopback name nor in `hosts` (lower case, no port), and an Origin that is
    neither the server's own nor in `origins` (as `origin_of` writes them; their names are hosts, too), such as `null`.
    """
    origins = set(origins)
    names = {*LOOPBACK_NAMES, *hosts, *(_split(origin.partition("://")[2])[0] for origin in origins)}
    headers = [value.decode("latin-1").strip().lower() for name, value in scope["headers"] if name.lower() == b"host"]
    for host in headers:  # browsers always send one
        if _split(host)[0] not in names:
            return f"this server answers to {', '.join(LOOPBACK_NAMES[:2])}, not to {host[:_MAX_SHOWN]!r}"
    scheme = str(scope.get("scheme", "http")).replace("ws", "http")  # the scheme of a websocket's page
    for name, value in scope["headers"]:
        if name.lower() == b"origin":
            origin = value.decode("latin-1").strip().lower()
            if origin not in origins and not any(_is_own(origin, scheme, host) for host in headers):
                return f"this server takes requests from its own pages, not from those of {origin[:_MAX_SHOWN]!r}"
    return None


def _split(host: str) -> tuple[str, str]:
    """Return the name and the port of `name:port`; the port is "" if there is none."""
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and port.isdigit() else (host, "")


def _is_own(origin: str, scheme: str, host: str) -> bool:
    """Return whether an origin is the requested server's; all loopback names with the same port are the same server."""
    page, server = (_normal_name(origin_of(url)) for url in (origin, f"{scheme}://{host}"))
    return page is not None and page == server


def _normal_name(origin: str | None) -> str | None:
    """Return an origin with `localhost` in place of any loopback name."""
    scheme, _, host = (origin or "").partition("://")
    name, port = _split(host)
    return f"{scheme}://localhost:{port}" if name in LOOPBACK_NAMES else origin


class OwnOriginOnly:
    """Passes on what `refusal` does not refuse; `advice`, how to allow another name, is appended to the reason."""

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), advice: str = ""
    ) -> None:
        self._app = app
        self._hosts = tuple(hosts)
        self._origins = tuple(filter(None, map(origin_of, origins)))
        self._advice = f"; {advice}" if advice else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            reason = refusal(scope, self._hosts, self._origins)
            if reason is not None:
                await _refuse(scope, receive, send, f"{reason}{self._advice}\n")
                return
        await self._app(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})  # before acceptance, so the server responds 403
        return
    headers = {"x-content-type-options": "nosniff", "connection": "close"}  # the body of a refused request is not read
    await PlainTextResponse(reason, 403, headers)(scope, receive, send)
