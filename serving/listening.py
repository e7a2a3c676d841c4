"""Servers that bind their address before they load anything, so that a taken port is reported at once."""

import socket
from types import FrameType

import uvicorn

from toolformer_core.errors import UsageError


def listen(host: str, port: int) -> socket.socket:
    """Bind an address (port 0: a free one) and listen there; a `UsageError` if it cannot be bound."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=dual)
    except (OSError, OverflowError) as exc:
        raise UsageError(f"cannot listen on {host} port {port}: {exc}; choose another --host or --port") from exc


class ListeningServer(uvicorn.Server):
    """A server with its socket, and an orderly end; see `listen`."""

    def __init__(self, config: uvicorn.Config, host: str, port: int) -> None:
        super().__init__(config)
        self._socket = listen(host, port)

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def end(self) -> None:
        """Make `serve_until_ended` return; called from any thread."""
        self.should_exit = True

    def serve_until_ended(self) -> None:
        """Serve until a signal or `end`."""
        self.run(sockets=[self._socket])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down in an orderly way at the first signal, at once at the second."""
        self.force_exit = self.should_exit
        self.should_exit = True
