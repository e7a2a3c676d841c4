"""The command `serve`, and the options by which it chooses tools for chats (GEAR).

Mistakes are reported before the server starts: of what it chooses tools by, the encoder alone is loaded at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from cli.options import option_name, option_of, with_options
from cli.tool_options import CallOptions, build_chosen
from cli.use.text import Model, WritingOptions, load_toolformer
from flows.forms.fields import Listed, Option
from tasks.environment import prepare_environment
from tasks.settings import api_key as api_key_from
from toolformer_core.errors import UsageError
from toolformer_core.grounding.records import GEAR_GAMMA

if TYPE_CHECKING:
    from serving.settings import RouterSettings
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.tools.base import Tool

_ROUTER = Option("Router")


class ServeOptions(CallOptions):
    """The tools, when they are called, and who chooses among them."""

    router: Annotated[Literal["off", "gear"], _ROUTER] = Field(
        "off", description="Who chooses a chat's tools. off: the model, while it writes; gear: scores of all tools"
    )
    router_model: Annotated[str, _ROUTER] = Field(
        "", description="Small model that ranks tools (default: the server's)"
    )
    router_encoder: Annotated[str, _ROUTER] = Field(
        "", description="Embeds queries and descriptions: a folder or hub name (default: the small model itself)"
    )
    router_threshold: Annotated[float | None, _ROUTER] = Field(
        None, allow_inf_nan=False, description="Smallest score of a tool that is called (default: the best always is)"
    )
    router_gamma: Annotated[float, _ROUTER] = Field(
        GEAR_GAMMA, ge=0, le=1, description="Weight of the description's likeness to the query, against the response's"
    )
    router_mock: Annotated[list[str], Listed, _ROUTER, Option(note="; separated by commas")] = Field(
        [], description="Keys of tools that are ranked by their mock response, without being run"
    )


def router_of(
    options: ServeOptions, tools: Sequence[Tool], model: str, load: Callable[[str], Toolformer], max_rows: int
) -> RouterSettings | None:
    """Return the router that the options ask for; None if it is off. `load` loads a small model by its name.

    A UsageError: an option without effect, or a model, an encoder or a mocked tool that cannot be used.
    """
    if options.router == "off":
        for name, field in ServeOptions.model_fields.items():
            default = field.get_default(call_default_factory=True)
            if name.startswith("router_") and getattr(options, name) != default:
                raise UsageError(f"{option_name(name)} has no effect without --router gear")
        return None
    from serving.settings import RouterSettings
    from toolformer_core.grounding.encoders import load_encoder
    from toolformer_core.grounding.library import library_of
    from toolformer_core.grounding.records import Weights
    from toolformer_core.lm.check import check_model

    other: dict[str, Any] = {}
    if options.router_model not in ("", model):
        check_model(options.router_model)
        other = {"load": lambda: load(options.router_model), "model": options.router_model, "max_rows": max_rows}
    return RouterSettings(
        library_of(tools, mock=options.router_mock, undemonstrated=True),
        weights=Weights(gamma=options.router_gamma, threshold=options.router_threshold),
        encoder=load_encoder(options.router_encoder) if options.router_encoder else None,
        **other,
    )


@with_options(ServeOptions)
def serve(
    options: ServeOptions,
    model: Model = "embedded",
    host: Annotated[
        str, typer.Option(help="Address to bind; others than loopback should have an API key")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8000,
    api_key: Annotated[str | None, typer.Option(help="What clients must send (better: $TOOLFORMER_API_KEY)")] = None,
    name: Annotated[str, typer.Option(help="The model's name for clients (default: as it is known here)")] = "",
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
        line = f"warning: {host} can be reached from other machines, and no API key is set; anybody may use this server"
        print(line, file=sys.stderr)
    print(f"{settings.name}: a page at {server.url}, OpenAI's API at {server.url}/v1; Ctrl-C ends it", flush=True)
    server.serve_until_ended()
