"""The options by which `serve` chooses tools for chats (GEAR), and the router that they ask for.

Only the encoder is loaded here, so that a wrong name is reported before the server starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from cli.options import option_name
from cli.tool_options import CallOptions
from flows.forms.fields import Listed, Option
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
        "off",
        description="Who chooses tools in /v1/chat/completions. off: the model, while it writes. gear: scores of "
        "every tool, the client's among them (the request's tools and tool_choice); one call is then made, here or by "
        "the client",
    )
    router_model: Annotated[str, _ROUTER] = Field(
        "", description="The small model that ranks the tools (default: the server's own model)"
    )
    router_encoder: Annotated[str, _ROUTER] = Field(
        "",
        description="Embeds queries and descriptions: a folder or hub name of sentence-transformers or model2vec "
        "(default: the small model's hidden states)",
    )
    router_threshold: Annotated[float | None, _ROUTER] = Field(
        None,
        allow_inf_nan=False,
        description="Smallest score of a tool that is called; below it the model answers alone (default: none, the "
        "best tool is always called). toolformer ground query shows scores",
    )
    router_gamma: Annotated[float, _ROUTER] = Field(
        GEAR_GAMMA,
        ge=0,
        le=1,
        description="Weight of the description's likeness to the query; the rest is that of the tool's response to an "
        "answer without it",
    )
    router_mock: Annotated[list[str], Listed, _ROUTER, Option(note="; separated by commas")] = Field(
        [],
        description="Keys of tools that are ranked by the mock response they declare, without being run: for calls "
        "that cost much or have effects",
    )


def router_of(
    options: ServeOptions, tools: Sequence[Tool], model: str, load: Callable[[str], Toolformer], max_rows: int
) -> RouterSettings | None:
    """Return the router that the options ask for; None if it is off.

    `load` loads a small model by its name, without tools, which writes `max_rows` texts together. A UsageError names
    an option without effect, or a model, an encoder or a mocked tool that cannot be used.
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
