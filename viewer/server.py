"""The viewer's server: listens on one address and serves the pages of one data folder until it is ended.

    python -m viewer.server --data DIR --port N

`toolformer view` and `toolformer up` start it.
"""

from __future__ import annotations

import argparse
from types import FrameType

import uvicorn

from serving.listening import listen, url_of
from tasks.environment import prepare_environment
from tasks.settings import allowed_hosts, allowed_origins
from viewer.app import make_app

__all__ = ["PORT", "ViewerServer", "main"]

PORT = 8001
_GRACE_S = 2  # for open requests when it is told to end


class ViewerServer(uvicorn.Server):
    """Serves the pages of a data folder.

    Args:
        data: the folder or URL.
        host: the address to bind.
        port: the port to bind; 0 takes a free one.

    Raises:
        UsageError: the address cannot be bound, or an allowed name is none.
    """

    def __init__(self, data: str, host: str = "127.0.0.1", port: int = PORT) -> None:
        app = make_app(data, hosts=allowed_hosts(), origins=allowed_origins())
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._socket = listen(host, port)

    @property
    def url(self) -> str:
        """The server's address."""
        return url_of(self._socket)

    def end(self) -> None:
        """Make `serve_until_ended` return; may be called from any thread."""
        self.should_exit = True

    def serve_until_ended(self) -> None:
        """Serve until a signal or `end`."""
        self.run(sockets=[self._socket])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down in an orderly way at the first signal, at once at the second."""
        self.force_exit = self.should_exit
        self.should_exit = True


def main() -> None:
    """Serve a data folder."""
    parser = argparse.ArgumentParser(description="Serve the pages of a data folder")
    parser.add_argument("--data", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=PORT)
    arguments = parser.parse_args()
    prepare_environment()
    ViewerServer(arguments.data, arguments.host, arguments.port).serve_until_ended()


if __name__ == "__main__":
    main()
