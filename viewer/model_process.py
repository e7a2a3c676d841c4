"""One model behind `serving`'s server on loopback, for the viewer, whose own process loads no model.

    python -m viewer.model_process MODEL

It writes one line of JSON: its address, from which `/health/ready` says when the model is loaded. If that fails, a
second line says why. It ends when its standard input does, so it never outlives the viewer.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from serving.server import ModelServer

_TOOL_TIMEOUT_S = 10.0
_ROWS, _QUEUE = 4, 16  # texts decoded together, and those that wait
_GRACE_S = 1.0  # for open answers when it is told to end
_LOADING_S = 10.0  # a model that is being loaded then is not waited for any longer


def main() -> None:
    """Serve the model that the first argument names, until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not stand between our lines
    from tasks.environment import prepare_environment
    from toolformer_core.errors import ToolformerError

    prepare_environment()
    try:
        _serve(sys.argv[1], out)
    except ToolformerError as exc:
        _write(out, {"problem": str(exc)})
        sys.exit(1)


def _serve(model: str, out: IO[str]) -> None:
    from serving.server import ModelServer
    from serving.settings import ServerSettings
    from tasks.settings import model_credentials
    from toolformer_core.config import TOOL_NAMES
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.lm.check import check_model
    from toolformer_core.lm.load import load_model
    from toolformer_core.tools.build import ToolSettings, build_tools

    check_model(model)
    tools = list(build_tools(list(TOOL_NAMES), ToolSettings()).values())

    def load() -> Toolformer:
        lm = load_model(model, credentials=model_credentials(model))
        return Toolformer(lm, tools, tool_timeout_s=_TOOL_TIMEOUT_S, max_rows=_ROWS)

    settings = ServerSettings(name="model", port=0, max_rows=_ROWS, queue=_QUEUE, grace_s=_GRACE_S)
    server = ModelServer(settings, load)
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    _write(out, {"url": server.url})
    server.serve_until_ended()


def _end_with_input(server: ModelServer) -> None:
    sys.stdin.buffer.read()
    server.end()
    overdue = threading.Timer(_GRACE_S + _LOADING_S, os._exit, (1,))
    overdue.daemon = True
    overdue.start()


def _write(out: IO[str], said: dict[str, str]) -> None:
    print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main()
