"""The one place that changes Prefect's own code: how Prefect 3.8 starts the server of a flow that names none.

There is no setting for the application that this server serves. A version of Prefect in which the method is gone is
refused at once, as its server would answer foreign web pages.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from prefect.server.api.server import SubprocessASGIServer

_METHOD = "_run_uvicorn_command"  # private, of 3.8.8


def start_servers_by(start: Callable[[int], subprocess.Popen[bytes]]) -> None:
    """Have Prefect start such servers by a function of the port.

    Raises:
        AttributeError: this version of Prefect starts its servers in another way.
    """
    getattr(SubprocessASGIServer, _METHOD)
    setattr(SubprocessASGIServer, _METHOD, lambda server: start(int(server.port or 0)))
