"""The viewer's server: listens on one address and serves the pages of one data folder until it is ended.

    python -m viewer.server --data DIR --port N

`toolformer view` and `toolformer up` start it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from urllib.parse import urlsplit

import uvicorn

from serving.listening import ListeningServer, is_loopback
from tasks.environment import prepare_environment
from tasks.settings import allowed_hosts, allowed_origins, api_key, shown_url
from toolformer_core.errors import UsageError
from viewer.app import make_app
from viewer.model_servers import ModelServers
from viewer.pages.prompt import Prompter

PORT = 8001
_GRACE_S = 2  # for open requests when it is told to end


class ViewerServer(ListeningServer):
    """Serves the pages of a data folder.

    Args:
        data: the folder or URL.
        host: the address to bind.
        port: the port to bind; 0 takes a free one.
        serve: servers of models that prompts can be put to: `NAME=URL` of a `toolformer serve`.

    Raises:
        UsageError: the address cannot be bound, an allowed name is none, or a server has no name or no address.
    """

    def __init__(self, data: str, host: str = "127.0.0.1", port: int = PORT, serve: Sequence[str] = ()) -> None:
        # Beyond loopback, who reaches the pages may only have those models loaded that they offer.
        prompter = Prompter(ModelServers(_named(serve)), any_model=is_loopback(host), key=api_key())
        app = make_app(data, hosts=allowed_hosts(), origins=allowed_origins(), prompter=prompter)
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=_GRACE_S,
            ),
            host,
            port,
        )


def _named(servers: Sequence[str]) -> dict[str, str]:
    """Return the servers of `--serve` by name."""
    out = {}
    for given in servers:
        name, _, url = given.partition("=")
        place = urlsplit(url.strip())
        if not name.strip() or place.scheme not in ("http", "https") or not place.hostname or place.username:
            raise UsageError(f"--serve {shown_url(given)}: write NAME=URL, e.g. ours=http://127.0.0.1:8000")
        out[name.strip()] = url.strip().rstrip("/").removesuffix("/v1")
    return out


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
