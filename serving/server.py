"""A uvicorn server for the application, with an orderly shutdown.

After the first SIGINT or SIGTERM the server accepts no more requests and gives the open ones `grace_s` seconds; then
their streams end with an error event. The second signal ends the server at once. This module reads no options and no
environment variables; the command line does.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import uvicorn

from serving.app import MAX_BODY, make_app
from serving.engine_thread import EngineThread
from serving.listening import ListeningServer, is_loopback
from serving.routing.records import RouterSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import UsageError
from toolformer_core.records import unencodable


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server.

    Args:
        name: the model's name for clients.
        host: address to bind.
        port: port to bind; 0 picks a free one.
        api_key: the key that clients must send; None accepts all.
        max_rows: sequences decoded together.
        queue: further sequences that may wait; requests beyond that get 429.
        max_body: the largest body of a request, in bytes.
        grace_s: seconds that open requests have to finish when the server shuts down.
        body_timeout_s: seconds within which a request's body must arrive, once its headers are there.
        router: how tools are chosen for a chat; None: the model calls them while it writes.
        trigger: per tool (its key), the smallest p(" [") at which it is called, for requests that name none; see
            `GenerationSettings`.

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
    body_timeout_s: float = 30.0
    router: RouterSettings | None = field(default=None, repr=False)
    trigger: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.queue < 0 or self.max_body < 1 or not self.grace_s >= 0:
            raise UsageError("max_rows and max_body must be at least 1, queue and grace_s at least 0")
        if not self.body_timeout_s > 0:
            raise UsageError("body_timeout_s must be positive")
        if self.api_key == "":
            raise UsageError("the API key is empty; set one, or none at all")
        for what, text in (("the model's name", self.name), ("the API key", self.api_key or "")):
            if flaw := unencodable(text):
                raise UsageError(f"{what} is not UTF-8 text ({flaw}); choose another")


class ModelServer(ListeningServer):
    """Serves a model.

    Args:
        settings: the server's settings.
        load: returns the model with its tools, built with `settings.max_rows`; called once the server is listening.

    Raises:
        UsageError: the address cannot be bound.
    """

    def __init__(self, settings: ServerSettings, load: Callable[[], Toolformer]) -> None:
        self.settings = settings
        self.engine_thread = EngineThread(load, max_rows=settings.max_rows, queue=settings.queue, on_failed=self.end)
        app = make_app(
            self.engine_thread,
            name=settings.name,
            api_key=settings.api_key,
            loopback=is_loopback(settings.host),
            max_body=settings.max_body,
            body_timeout_s=settings.body_timeout_s,
            router_settings=settings.router,
            trigger=settings.trigger,
        )
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                http="h11",
                limit_concurrency=2 * self.engine_thread.places + 256,
                timeout_graceful_shutdown=int(settings.grace_s) + 10,
            ),
            settings.host,
            settings.port,
        )

    def serve_until_ended(self) -> None:
        """Serve until a signal or `end`.

        Raises:
            ToolformerError: the model cannot be loaded.
        """
        super().serve_until_ended()
        if self.engine_thread.failure is not None:
            raise self.engine_thread.failure

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`; open requests get their grace period."""
        self.engine_thread.drain(self.settings.grace_s)
        await super().shutdown(sockets)
