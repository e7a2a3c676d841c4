"""A uvicorn server for the application, with an orderly shutdown.

After the first SIGINT or SIGTERM open requests have `grace_s` seconds; then their streams end with an error event. The
second signal ends the server at once.
"""

import socket
from collections.abc import Callable

import uvicorn

from serving.app import make_app
from serving.engine_thread import EngineThread
from serving.listening import ListeningServer
from serving.settings import ServerSettings
from toolformer_core.decode.toolformer import Toolformer


class ModelServer(ListeningServer):
    """Serves a model; `load`, which returns it with its tools, is called once the server is listening."""

    def __init__(self, settings: ServerSettings, load: Callable[[], Toolformer]) -> None:
        self.settings = settings
        self.engine_thread = EngineThread(load, max_rows=settings.max_rows, queue=settings.queue, on_failed=self.end)
        super().__init__(
            uvicorn.Config(
                make_app(self.engine_thread, settings),
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
        """Serve until a signal or `end`; raise what the model cannot be loaded for."""
        super().serve_until_ended()
        if self.engine_thread.failure is not None:
            raise self.engine_thread.failure

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`; open requests get their grace period."""
        self.engine_thread.drain(self.settings.grace_s)
        await super().shutdown(sockets)
