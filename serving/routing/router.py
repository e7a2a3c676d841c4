"""Decides who answers a chat: one of the server's tools, one of the client's, or the model alone (GEAR, algorithm 1).

    1. the small LM answers the query without a tool, and writes a call of each of the server's tools that is not mocked
    2. those calls run; a tool with a mock response is ranked by that, a client's tool without one by its description
    3. best first (`grounding.records`), the server's model writes the call of a tool: the server's own runs, a client's
       must fit its schema; one that cannot be written, does not fit or gives nothing is passed over

If the small LM is the server's own model, the call of step 1 is that of step 3. What is written in step 3 begins with
the tool's name, since the tool is chosen; in step 1 the small LM must write it itself, as in `grounding.ground`.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from prometheus_client import Counter, Histogram

from serving.engine_thread import EngineThread
from serving.errors import RequestError, invalid
from serving.metrics import SECONDS
from serving.routing.client_tools import PREFIX, ClientTool
from serving.routing.model_access import Embedder, Writing, Written, call_writing, input_written, tool_call, write
from serving.routing.schemas import Choice
from serving.settings import RouterSettings
from toolformer_core.decode.records import ToolCall
from toolformer_core.grounding.ground import NO_CALL, tool_score
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.grounding.records import Grounding, Query
from toolformer_core.grounding.small_lm import first_line
from toolformer_core.tools.arguments.form import BadInput
from toolformer_core.tools.base import Tool

_CLIENT_CALL_TOKENS = 128  # of a call with arguments by name or as JSON
_MAX_TRIES = 8  # tools whose call is written for one request


@dataclass(frozen=True, slots=True)
class RouteRequest:
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


class Router:
    def __init__(self, settings: RouterSettings, server: EngineThread) -> None:
        self.settings = settings
        self._server = server
        self._small = server
        if settings.load is not None:
            places = {"max_rows": settings.max_rows, "queue": server.places}
            self._small = EngineThread(settings.load, **places, on_failed=self._small_lm_failed)
        self._embedder = Embedder(self._small, settings.encoder)
        registry = server.metrics.registry
        meaning = "Requests that the router decided, by who runs the chosen tool (server, client, nobody) and its name"
        self._routed = Counter("toolformer_routed_requests", meaning, ["runs_it", "tool"], registry=registry)
        meaning = "Tools that ranked high enough, but whose call could not be written or gave nothing"
        self._rejected = Counter("toolformer_router_passed_over", meaning, ["runs_it"], registry=registry)
        meaning = "From a request's arrival at the router to its choice"
        self._seconds = Histogram("toolformer_router_seconds", meaning, registry=registry, buckets=SECONDS)

    @property
    def state(self) -> str:
        """The small LM's: loading, ready, draining or failed."""
        return self._small.state

    @property
    def described(self) -> dict[str, Any]:
        w = self.settings.weights
        weights = {"gamma": w.gamma, "lambda": w.smoothing, "threshold": w.threshold}
        return {"name": "gear", "model": self.settings.model or None, **weights}

    def start(self) -> None:
        """Start loading the small LM, unless it is the server's model. Call it in the running event loop."""
        if self._small is not self._server:
            self._small.start()

    async def close(self) -> None:
        """End the small LM's thread, unless it is the server's."""
        if self._small is not self._server:
            await self._small.close()

    def _small_lm_failed(self) -> None:
        if self._small.failure is not None:
            self._server.fail(self._small.failure)

    async def route(self, request: RouteRequest) -> Route:
        """Choose a tool and have it called.

        A `RequestError`: 400 if there is no such tool, or no call that the client demands could be written; 429 or 503
        if there are no places, or no model. A `ToolformerError` if a prompt does not suit the model.
        """
        begin = time.monotonic()
        candidates, weights = _candidates(request), self.settings.weights
        if request.threshold is not None:
            weights = replace(weights, threshold=request.threshold)
        grounding: Grounding | None = None
        drafts: dict[str, Route] = {}
        order = [(one.key, math.inf) for one in candidates]
        if candidates and request.choice.kind != "function":
            grounding, drafts = await self._ranked(request, candidates)
            order = [(score.tool, total) for score, total in grounding.ranking(weights)]
        demanded = request.choice.kind != "auto"
        least = -math.inf if demanded or weights.threshold is None else weights.threshold
        by_key = {one.key: one for one in candidates}
        allowed = [by_key[key] for key, score in order if score >= least]
        rejected_tools: dict[str, str] = {}
        chosen = Route("nobody")
        for one in allowed[:_MAX_TRIES]:  # until one answers
            found = await self._call(one, request, drafts.get(one.key))
            if isinstance(found, Route):
                chosen = found
                break
            rejected_tools[one.key] = found
            self._rejected.labels("client" if isinstance(one.tool, ClientTool) else "server").inc()
        self._routed.labels(chosen.runs_it, chosen.call.tool if chosen.call is not None else "").inc()
        self._seconds.observe(time.monotonic() - begin)
        if demanded and chosen.runs_it == "nobody":
            said = "; ".join(f"{tool}: {why}" for tool, why in rejected_tools.items())
            message = f"the model wrote no call that tool_choice demands and that can be used ({said})"
            raise RequestError(400, message, param="tool_choice", code="tool_use_failed")
        return replace(chosen, grounding=grounding, rejected_tools=rejected_tools)

    async def _ranked(
        self, request: RouteRequest, candidates: Sequence[LibraryTool]
    ) -> tuple[Grounding, dict[str, Route]]:
        """Score the tools; return the scores, and the calls that ran for them."""
        grounding, patterns = self.settings.grounding, self.settings.patterns
        semantic = await self._embedder.similarities(request.query, [one.tool.description for one in candidates])
        called = [one for one in candidates if not one.mocked]
        writings = [
            Writing(
                grounding.prompt_for(request.query), grounding.max_answer_tokens, lambda text: "\n" in text.lstrip()
            ),
            *(call_writing(one, request.query, grounding.max_call_tokens) for one in called),
        ]
        answer_written, *calls_written = await write(self._small, writings)
        answer = "" if answer_written is None else first_line(answer_written.text)
        runs = await asyncio.gather(
            *(self._run(one.tool, w, request.context) for one, w in zip(called, calls_written, strict=True))
        )
        drafts = {one.key: draft for one, draft in zip(called, runs, strict=True) if draft is not None}
        scores = tuple(
            tool_score(one, similarity, drafts[one.key].call if one.key in drafts else None, patterns)
            for one, similarity in zip(candidates, semantic, strict=True)
        )
        query = Query(request.query, request.context)
        return Grounding(query, answer, patterns.answer_counts(answer), scores, patterns.weights), drafts

    async def _run(self, tool: Tool, written: Written | None, context: str, begun: str = "") -> Route | None:
        """Run the call of a tool that a model wrote after its beginning; None if it wrote none."""
        given = None if written is None else input_written(tool.name, begun + written.text)
        if given is None:
            return None
        result, seconds = await self._server.ask(tool.name, given, context)
        call = tool_call(tool.name, given, result, seconds, self.settings.grounding.execution.max_response_chars)
        self._server.metrics.called(call)
        return Route("server", call=call, written=written)

    async def _call(self, one: LibraryTool, request: RouteRequest, draft: Route | None) -> Route | str:
        """Have a tool called; return why it is passed over if that fails."""
        tool = one.tool
        if draft is None or self._small is not self._server:
            begun = f"{tool.name}("
            most = _CLIENT_CALL_TOKENS if isinstance(tool, ClientTool) else self.settings.grounding.max_call_tokens
            (written,) = await write(self._server, [call_writing(one, request.query, most, begun)])
            if isinstance(tool, ClientTool):
                return await _for_client(tool, written, begun)
            draft = await self._run(tool, written, request.context, begun)
        if draft is None:
            return NO_CALL
        if draft.call is not None and draft.call.failure is not None:
            return f"{draft.call.failure} {draft.call.detail}".rstrip()
        return draft


async def _for_client(tool: ClientTool, written: Written | None, begun: str) -> Route | str:
    given = None if written is None else input_written(tool.name, begun + written.text)
    if given is None:
        return NO_CALL
    try:
        arguments = await asyncio.to_thread(tool.arguments, given)
    except BadInput as exc:
        return f"{given[:80]!r} gives no arguments: {exc}"
    return Route("client", function=tool.function, input=given, arguments=arguments, written=written)


def _candidates(request: RouteRequest) -> tuple[LibraryTool, ...]:
    """Return the tools among which a request lets the router choose; refuse (400) a demand that nothing can meet."""
    kind, both = request.choice.kind, request.server + request.client
    if kind == "auto":
        return both if request.query else ()
    if not request.query:
        raise invalid("messages", f"tool_choice {kind} needs a user message that is not empty")
    if kind == "required":
        if not both:
            raise invalid("tool_choice", "tool_choice required needs tools; send some, or leave it out")
        return request.client or request.server
    name = request.choice.function
    named = [one for one in request.client if one.key == PREFIX + name]
    if named or (named := [one for one in request.server if name in (one.key, one.tool.name)]):
        return (named[0],)
    listed = ", ".join(one.key.removeprefix(PREFIX) for one in request.client + request.server) or "none"
    message = f"tool_choice names {name!r}, which is no tool of this request or this server; there are: {listed}"
    raise invalid("tool_choice", message)
