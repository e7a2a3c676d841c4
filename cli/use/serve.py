"""The command `serve`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import option_of, with_options
from cli.tool_options import build_chosen
from cli.use.router_options import ServeOptions, router_of
from cli.use.text import Model, WritingOptions, load_toolformer
from tasks.environment import prepare_environment
from tasks.settings import api_key as api_key_from

if TYPE_CHECKING:
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.tools.base import Tool


@with_options(ServeOptions)
def serve(
    options: ServeOptions,
    model: Model = "embedded",
    host: Annotated[
        str, typer.Option(help="Address to bind; others than loopback should have an API key")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(help="What clients must send (better: $TOOLFORMER_API_KEY, which ps does not show)")
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            help="The model's name for clients (default: --model; of a folder its name, of a training its job's)"
        ),
    ] = "",
    queue: Annotated[int, typer.Option(min=0, help="Texts that may wait for a row; others get 429")] = 256,
    max_rows: Annotated[int, typer.Option(min=1, help="Texts decoded together")] = 32,
    grace: Annotated[float, typer.Option(min=0, help="Seconds open answers have when the server is stopped")] = 10.0,
    tool_timeout: Annotated[float, option_of(WritingOptions, "tool_timeout")] = 10.0,
) -> None:
    """Serve the model to OpenAI's clients, with /metrics, /health and a page to try it. Ctrl-C stops it cleanly.

    With --router gear a chat's tools are ranked before anything is written: the server runs its own, and a client gets
    a call of one of its own tools as tool_calls.

    Example: toolformer serve --model runs/model --port 8000     then open http://127.0.0.1:8000
    """
    prepare_environment()
    from flows.forms.chosen_trigger import chosen_trigger
    from serving.server import ModelServer
    from serving.settings import ServerSettings
    from tasks.training.registry import model_label
    from toolformer_core.endpoints import is_loopback
    from toolformer_core.lm.check import check_model

    check_model(model)
    tools = build_chosen(options)
    loaded_tools = list(tools.values())

    def load(name: str, tools: list[Tool]) -> Toolformer:
        return load_toolformer(name, tools, tool_timeout, max_rows)

    router = router_of(options, loaded_tools, model, lambda name: load(name, []), max_rows)
    settings = ServerSettings(
        name=name or model_label(model),
        host=host,
        port=port,
        api_key=api_key_from(api_key),
        max_rows=max_rows,
        queue=queue,
        grace_s=grace,
        router=router,
        trigger=chosen_trigger(options.trigger, model, tools),
    )
    server = ModelServer(settings, lambda: load(model, loaded_tools))
    if settings.api_key is None and not is_loopback(host):
        warning = (
            f"warning: {host} can be reached from other machines, and no API key is set; anybody may use this server"
        )
        print(warning, file=sys.stderr)
    print(f"{settings.name}: a page at {server.url}, OpenAI's API at {server.url}/v1; Ctrl-C ends it", flush=True)
    server.serve_until_ended()
