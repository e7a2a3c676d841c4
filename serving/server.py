"""A uvicorn server around the application, that ends well.

The first SIGINT or SIGTERM lets nobody in any more and gives open answers `grace_s` seconds; then their streams end
with an error event. The second ends at once. It knows no options and no environment: the command line does.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FrameType

import uvicorn

from serving.app import MAX_BODY, make_app
from serving.connections import Connection, ConnectionLimits, open_files
from serving.driver import Driver
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import UsageError
from toolformer_core.records import unencodable

__all__ = ["Server", "ServerSettings", "is_loopback"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server is set up.

    Args:
        name: the model's name for clients.
        host: address to bind.
        port: 0 takes a free one.
        api_key: what clients must send; None lets everybody in.
        max_rows: sequences decoded together.
        queue: sequences that may wait besides; others get 429.
        max_body: bytes a request may have.
        grace_s: seconds open answers have when the server is told to end.
        connections: open at once; None: four for each row and place in the queue, and 256.
        header_timeout_s: seconds in which a request's line and headers must have come.
        body_timeout_s: seconds in which its body must have come after that.

    Raises:
        UsageError: a value out of range.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = field(default=None, repr=False)
    max_rows: int = 32
    queue: int = 256
    max_body: int = MAX_BODY
    grace_s: float = 10.0
    connections: int | None = None
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.queue < 0 or self.max_body < 1 or not self.grace_s >= 0:
            raise UsageError("rows and bytes must be at least 1, queue and grace at least 0")
        if not (self.header_timeout_s > 0 and self.body_timeout_s > 0) or (
            self.connections is not None and self.connections < 1
        ):
            raise UsageError("connections must be at least 1, the time for headers and for a body positive")
        if self.api_key == "":
            raise UsageError("the API key is empty; give one, or none at all")
        for what, text in (("the model's name", self.name), ("the API key", self.api_key or "")):
            if wrong := unencodable(text):
                raise UsageError(f"{what} is not UTF-8 text ({wrong}); give another")


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Server(uvicorn.Server):
    """Serves a model.

    Args:
        settings: how it is set up.
        load: returns the model with its tools, set up with `settings.max_rows`; called after the server listens.

    Raises:
        UsageError: the address cannot be bound.
    """

    def __init__(self, settings: ServerSettings, load: Callable[[], Toolformer]) -> None:
        self.settings = settings
        self.driver = Driver(load, max_rows=settings.max_rows, queue=settings.queue, on_failed=self.end)
        app = make_app(
            self.driver,
            name=settings.name,
            api_key=settings.api_key,
            loopback=is_loopback(settings.host),
            max_body=settings.max_body,
            body_timeout_s=settings.body_timeout_s,
        )
        limit = self._connection_limit()
        limits = ConnectionLimits(limit, settings.header_timeout_s)
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                http=partial(Connection, limits=limits),  # type: ignore[arg-type]  # uvicorn calls it, no more
                backlog=limit,  # as many may be accepted at a time
                timeout_graceful_shutdown=int(settings.grace_s) + 10,
            )
        )
        self._socket = _bound(settings.host, settings.port)

    def _connection_limit(self) -> int:
        wanted = self.settings.connections or 4 * self.driver.places + 256
        limit = open_files(wanted)
        if limit < wanted:
            _log.warning(
                "warning: this system lets the server have %d connections open, not %d; raise its hard limit of open "
                "files (ulimit -Hn)",
                limit,
                wanted,
            )
        return limit

    @property
    def url(self) -> str:
        """Its address."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def end(self) -> None:
        """Have `run` return; may be called from any thread."""
        self.should_exit = True

    def serve_until_ended(self) -> None:
        """Serve until a signal or `end`.

        Raises:
            ToolformerError: the model cannot be loaded.
        """
        self.run(sockets=[self._socket])
        if self.driver.failure is not None:
            raise self.driver.failure

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`; open answers have their time of grace."""
        self.driver.drain(self.settings.grace_s)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End well at the first signal, at once at the second."""
        self.force_exit = self.should_exit
        self.should_exit = True


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(address)
        except OSError:
            found.close()
            raise
    except (OSError, OverflowError) as exc:
        raise UsageError(f"cannot listen on {host} port {port}: {exc}; name another --host or --port") from exc
    found.listen(2048)
    return found
