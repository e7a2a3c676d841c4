"""Prefect's server (`python -m flows.runtime.prefect_app`) with a middleware that refuses foreign pages and host names.

Without it Prefect's server would answer requests of every web page, and a worker runs every flow run that is posted.
"""

import argparse
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from serving.origins import LOOPBACK_NAMES, OwnOriginOnly, origin_of
from tasks.environment import prepare_environment
from tasks.settings import allowed_hosts, allowed_origins
from toolformer_core.errors import UsageError

APP = "flows.runtime.prefect_app:create_app"  # for `uvicorn --factory`
_ADVICE = "TOOLFORMER_ALLOWED_HOSTS and TOOLFORMER_ALLOWED_ORIGINS of the server allow others"


def create_app(final: bool = False) -> OwnOriginOnly:
    """Return Prefect's application with the middleware, or raise a UsageError if a variable allows what is none."""
    from prefect.server.api import server
    from prefect.settings import PREFECT_SERVER_CORS_ALLOWED_ORIGINS, PREFECT_UI_API_URL, temporary_settings

    _lock_when_transactions_begin()
    hosts, origins = allowed_hosts(), [origin for url in allowed_origins() if (origin := origin_of(url))]
    readers = {*_own_origins(PREFECT_UI_API_URL.value() or ""), *origins}
    with temporary_settings({PREFECT_SERVER_CORS_ALLOWED_ORIGINS: ",".join(sorted(readers))}):
        app = server.create_app(final=final)
    return OwnOriginOnly(app, hosts=hosts, origins=origins, advice=_ADVICE)


def _lock_when_transactions_begin() -> None:
    """Have transactions of Prefect's server wait for SQLite's lock before they read: Prefect 3.8 cannot."""
    # One that first reads and then writes fails at once if another one has written meanwhile: some forms that were
    # submitted at the same time were answered 503.
    from prefect.server.database.configurations import AioSqliteConfiguration

    usual = AioSqliteConfiguration.begin_transaction

    def immediate(self: AioSqliteConfiguration, session: Any, with_for_update: bool = True) -> Any:
        return usual(self, session, with_for_update=True)

    setattr(AioSqliteConfiguration, usual.__name__, immediate)


def _own_origins(api: str) -> list[str]:
    # they may be opened under any name of loopback
    if (origin := origin_of(api)) is None:
        return []
    port = urlsplit(origin).port
    return [origin, *(f"http://{name}" + (f":{port}" if port else "") for name in LOOPBACK_NAMES)]


def main(words: Sequence[str] | None = None) -> None:
    """Serve until a signal arrives, with Prefect's settings for keep-alive, pings and the log."""
    parser = argparse.ArgumentParser(prog="python -m flows.runtime.prefect_app", description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: %(default)s)")
    parser.add_argument("--port", type=int, default=4200, help="port to bind (default: %(default)s)")
    arguments = parser.parse_args(words)
    prepare_environment()
    import uvicorn
    from prefect.settings import get_current_settings

    settings = get_current_settings().server
    try:
        app = create_app(final=True)
    except UsageError as exc:
        parser.exit(2, f"{exc}\n")
    uvicorn.run(
        app,
        host=arguments.host,
        port=arguments.port,
        timeout_keep_alive=settings.api.keepalive_timeout,
        ws_ping_interval=settings.api.websocket_ping_interval,
        ws_ping_timeout=settings.api.websocket_ping_timeout,
        log_level=settings.logging_level.lower(),
    )


if __name__ == "__main__":
    main()
