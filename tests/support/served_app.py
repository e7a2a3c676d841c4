"""An application, served on a free port of the loopback interface in a thread of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

_DEADLINE_S = 30.0


@contextmanager
def served(app: Any, **config: Any) -> Iterator[str]:
    """Serve while the block runs; yield `127.0.0.1:port`."""
    settings = {"lifespan": "off", "log_level": "error", "timeout_graceful_shutdown": 2, "ws": "none", **config}
    server = uvicorn.Server(uvicorn.Config(app, **settings))
    with socket.create_server(("127.0.0.1", 0)) as listener:  # who comes before it is served waits
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(_DEADLINE_S)
            assert not thread.is_alive()
