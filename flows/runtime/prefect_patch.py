"""The one place that changes Prefect's own code, for which Prefect 3.8 has no settings.

- How it starts the server of a flow that names none. A version of Prefect in which the method is gone is refused at
  once, as its server would answer foreign web pages.
- How its transactions begin in SQLite.
"""

import subprocess
from collections.abc import Callable
from typing import Any

from prefect.server.api.server import SubprocessASGIServer
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.ext.asyncio import AsyncSession

_METHOD = "_run_uvicorn_command"  # private, of 3.8.8


def start_servers_by(start: Callable[[int], subprocess.Popen[bytes]]) -> None:
    """Have Prefect start such servers by a function of the port.

    Raises:
        AttributeError: this version of Prefect starts its servers in another way.
    """
    getattr(SubprocessASGIServer, _METHOD)
    setattr(SubprocessASGIServer, _METHOD, lambda server: start(int(server.port or 0)))


def lock_when_transactions_begin() -> None:
    """Have transactions of Prefect's server wait for SQLite's lock before they read.

    One that first reads and then writes fails at once, as `database is locked`, if another one has written meanwhile:
    of forms that were submitted at the same time some were answered 503.
    """
    usual = AioSqliteConfiguration.begin_transaction

    def immediate(self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = True) -> Any:
        return usual(self, session, with_for_update=True)

    setattr(AioSqliteConfiguration, usual.__name__, immediate)
