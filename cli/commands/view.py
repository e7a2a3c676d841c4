"""The command `view`: pages over a data folder's snapshot. `cli.main` registers it.

It imports what it needs when it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from cli.options import Data
from tasks.environment import prepare_environment
from tasks.settings import data_folder
from toolformer_core.errors import UsageError


def view(
    data: Data = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8001,
    host: Annotated[
        str,
        typer.Option(
            help="Address to bind; who reaches it reads the data, and may judge calls and make versions of C*"
        ),
    ] = "127.0.0.1",
) -> None:
    """Show C* in a browser: documents with their calls, why each was kept, what other thresholds would keep, SQL.

    The pages read the published snapshot, also while a build runs, and load nothing from the network. They write marks
    (see toolformer marks), and the versions that Materialise makes, as what-if --materialise does. Other
    host names than localhost and pages of other origins are refused; TOOLFORMER_ALLOWED_HOSTS and
    TOOLFORMER_ALLOWED_ORIGINS allow more.

    Example: toolformer view                    shows ./toolformer-data; then open http://127.0.0.1:8001
    Example: toolformer view --data runs/c4
    """
    prepare_environment()
    from toolformer_core.endpoints import is_loopback
    from viewer.server import ViewerServer

    folder = data_folder(data)
    if "://" not in folder and not Path(folder).is_dir():
        raise UsageError(
            f"there is no folder {folder}; toolformer build --data {quote(folder)} makes one, "
            "make demo ./toolformer-data"
        )
    server = ViewerServer(folder, host, port)
    if not is_loopback(host):
        warning = f"warning: {host} can be reached from other machines, and the viewer asks nobody for a password"
        print(warning, file=sys.stderr)
    print(f"the viewer of {folder}: {server.url}; Ctrl-C ends it", flush=True)
    server.serve_until_ended()
