"""The viewer's server, which `toolformer view` and `toolformer up` start: `python -m viewer.server --data DIR`."""

import argparse

import uvicorn

from serving.listening import ListeningServer
from tasks.environment import prepare_environment
from tasks.settings import allowed_hosts, allowed_origins
from viewer.app import make_app

PORT = 8001


class ViewerServer(ListeningServer):
    """Serves the pages of a data folder; the port 0 takes a free one.

    A UsageError: the address cannot be bound, or an allowed name is none.
    """

    def __init__(self, data: str, host: str = "127.0.0.1", port: int = PORT) -> None:
        app = make_app(data, hosts=allowed_hosts(), origins=allowed_origins())
        config = uvicorn.Config(  # open requests have two seconds when it is told to end
            app, log_level="warning", access_log=False, server_header=False, ws="none", timeout_graceful_shutdown=2
        )
        super().__init__(config, host, port)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the pages of a data folder")
    parser.add_argument("--data", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=PORT)
    arguments = parser.parse_args()
    prepare_environment()
    ViewerServer(arguments.data, arguments.host, arguments.port).serve_until_ended()


if __name__ == "__main__":
    main()
