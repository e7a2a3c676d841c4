"""Prefect's server as this project starts it: behind a door that refuses foreign web pages and foreign names.

    python -m flows.prefect_app --host 127.0.0.1 --port 4200

does what `prefect server start` does, and `create_app` makes the same application for uvicorn. Prefect's own server
answers every web page, and a worker runs each flow run that is posted. Other names and pages are allowed by
$TOOLFORMER_ALLOWED_HOSTS and $TOOLFORMER_ALLOWED_ORIGINS. When a server is started, and by whom, is not known here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

from serving.origins import LOOPBACK_NAMES, OwnOriginOnly, origin_of
from tasks.settings import allowed_hosts, allowed_origins, prepare
from toolformer_core.errors import UsageError

__all__ = ["APP", "create_app", "main"]

APP = "flows.prefect_app:create_app"  # for `uvicorn --factory`
_ADVICE = "TOOLFORMER_ALLOWED_HOSTS and TOOLFORMER_ALLOWED_ORIGINS of the server allow others"


def create_app(final: bool = False) -> OwnOriginOnly:
    """Return Prefect's application behind the door.

    Args:
        final: whether it is the only one of this process, which saves memory.

    Raises:
        UsageError: a name or address that is to be allowed is none.
    """
    from prefect.server.api import server
    from prefect.settings import PREFECT_SERVER_CORS_ALLOWED_ORIGINS, PREFECT_UI_API_URL, temporary_settings

    hosts, origins = allowed_hosts(), [origin for url in allowed_origins() if (origin := origin_of(url))]
    readers = {*_own_origins(PREFECT_UI_API_URL.value() or ""), *origins}
    with temporary_settings({PREFECT_SERVER_CORS_ALLOWED_ORIGINS: ",".join(sorted(readers))}):
        app = server.create_app(final=final)
    return OwnOriginOnly(app, hosts=hosts, origins=origins, advice=_ADVICE)


def _own_origins(api: str) -> list[str]:
    """Return the origins of the server's pages, which may be opened under any name of loopback."""
    own = origin_of(api)
    if own is None:
        return []
    port = urlsplit(own).port
    return [own, *(f"http://{name}" + (f":{port}" if port else "") for name in LOOPBACK_NAMES)]


def main(words: Sequence[str] | None = None) -> None:
    """Serve until a signal comes, with Prefect's own settings of keep-alive, pings and log."""
    parser = argparse.ArgumentParser(prog="python -m flows.prefect_app", description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: %(default)s)")
    parser.add_argument("--port", type=int, default=4200, help="port to bind (default: %(default)s)")
    told = parser.parse_args(words)
    prepare()
    import uvicorn
    from prefect.settings import get_current_settings

    settings = get_current_settings().server
    try:
        app = create_app(final=True)
    except UsageError as exc:
        parser.exit(2, f"{exc}\n")
    uvicorn.run(
        app,
        host=told.host,
        port=told.port,
        timeout_keep_alive=settings.api.keepalive_timeout,
        ws_ping_interval=settings.api.websocket_ping_interval,
        ws_ping_timeout=settings.api.websocket_ping_timeout,
        log_level=settings.logging_level.lower(),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
