"""The router's settings, requests and decisions, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from serving.routing.model_access import Written
from serving.routing.schemas import Choice
from toolformer_core.decode.records import ToolCall
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.grounding.encoders import Encoder
from toolformer_core.grounding.ground import GroundingSettings
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.grounding.patterns import STANDARD_PATTERNS, PatternSet
from toolformer_core.grounding.records import Grounding, Weights


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How a server chooses tools.

    Args:
        weights: gamma, lambda and the threshold. Without a threshold, the best tool is always called.
        load: returns another small LM, without tools; None: the server's own model.
    """

    library: tuple[LibraryTool, ...]  # the server's own tools, with their demonstrations and mock responses
    weights: Weights = field(default_factory=Weights)
    grounding: GroundingSettings = field(default_factory=GroundingSettings)  # prompts and lengths of the small LM
    patterns: PatternSet = STANDARD_PATTERNS  # the pattern set S with its priors
    encoder: Encoder | None = None  # embeds queries and descriptions; None: the small LM's hidden states
    load: Callable[[], Toolformer] | None = None
    model: str = ""  # its name, for people; "": the server's own model
    max_rows: int = 32  # texts that another small LM writes together


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """What is to be decided."""

    query: str  # the last user turn, in one line; "" if there is none
    context: str  # what tools may know besides: the date (ISO)
    choice: Choice  # what the client says of it; not `none`
    server: tuple[LibraryTool, ...]  # the server's tools that may be called
    client: tuple[LibraryTool, ...]  # the client's tools
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """The decision: a call that has run (`server`), a call for the client, or no call (`nobody`)."""

    runs_it: Literal["server", "client", "nobody"]
    call: ToolCall | None = None  # that has run
    function: str = ""  # the client's
    input: str = ""  # of the call for the client, as the model wrote it
    arguments: str = ""  # what it gives, as JSON
    written: Written | None = None  # what the call was read from
    grounding: Grounding | None = None  # the scores; None: tools were not ranked
    rejected_tools: Mapping[str, str] = field(default_factory=dict)  # tools whose call came to nothing -> why
