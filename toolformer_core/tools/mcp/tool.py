"""A tool of any MCP server, behind the interface of all tools. It can be pickled: connections belong to the process.

The texts of an answer, joined by newlines, are the response, or else its structured content, as compact JSON (of
`{"result": value}` the value). Failures: `not_text` (images, sound, links alone), `no_result`, `tool_error` (with its
text), `invalid_input` (the server refuses the arguments), `timeout` and `unreachable` (these two are retryable),
`invalid_response` (not what the protocol or the tool's output schema says).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from toolformer_core.errors import ToolError, ToolformerError, UnknownNameError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of
from toolformer_core.tools.arguments.form import ArgumentForm, BadInput
from toolformer_core.tools.base import REMOTE_TTL_S, ToolLimits
from toolformer_core.tools.custom.reference import camel_case, key_of
from toolformer_core.tools.declaration import ToolDeclaration
from toolformer_core.tools.mcp.reference import MCPSettings, Server, SessionLimits, parse_reference
from toolformer_core.tools.mcp.session import Overdue, Unreachable
from toolformer_core.tools.mcp.session_pool import ask, tools_of

if TYPE_CHECKING:
    from mcp.types import CallToolResult

VERSION = "2"
TIMEOUT_S = 30.0  # of a call whose limits name none; the stage's own default
_EARLIER = 0.95  # of the limit: the failure then says what happened before the stage gives the call up
_MAX_DESCRIPTION_CHARS = 300
MAX_TEXT_CHARS = 100_000  # of a response; what stands in a call is far shorter, and cut later
_MAX_DETAIL_CHARS = 500


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What a server says of a tool, and of itself ("" where it says nothing)."""

    tool: str
    description: str
    schema: str  # of the arguments, as JSON, in the server's order
    server: str
    version: str

    @property
    def parts(self) -> dict[str, str]:
        """What a response depends on, by what it is called; the order of the arguments is no part of it."""
        schema = json.dumps(json.loads(self.schema), sort_keys=True, separators=(",", ":"))
        return {"schema": schema, "server": self.server, "version": self.version}


@dataclass(frozen=True)
class MCPTool:
    """A tool of an MCP server. Use `mcp_tool`, which asks the server for the definition."""

    ttl_s: ClassVar[float] = REMOTE_TTL_S

    server: Server
    definition: ToolDefinition
    key: str
    name: str
    limits: ToolLimits  # how the tool may be called; `timeout_s` holds for each call, 30 s if it is None
    declaration: ToolDeclaration  # how the tool is taught
    summary: str = ""  # one sentence in place of the server's description; "": the server's

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "form"}

    @cached_property
    def form(self) -> ArgumentForm:
        return ArgumentForm(json.loads(self.definition.schema))

    @property
    def description(self) -> str:
        """One line: the summary if there is one, else the first paragraph of the server's description."""
        if self.summary:
            return self.summary
        line = " ".join(self.definition.description.strip().split("\n\n")[0].split())
        if len(line) > _MAX_DESCRIPTION_CHARS:
            return line[:_MAX_DESCRIPTION_CHARS].rsplit(" ", 1)[0] + " ..."
        server = self.definition.server or self.server.text
        return line or f"The tool {self.definition.tool} of the MCP server {server}."

    @property
    def fingerprint(self) -> str:
        said = self.definition
        return digest_of("MCPTool", VERSION, self.server.text, said.tool, said.description, *said.parts.values())

    def load(self) -> None:
        """Connect (see `mcp_tool`); a `ToolError` if the server or its tool has changed since."""
        found = definition_of(self.server, self.definition.tool)
        for what, planned in self.definition.parts.items():
            if found.parts[what] != planned:
                raise ToolError(
                    f"the {what} of {self.server.text}#{self.definition.tool} has changed since the tool was named; "
                    "start again, so that no two versions share their responses"
                )

    def run(self, input: str, context: str = "") -> ToolResult:
        """Ask the server; the context is ignored. A `UsageError` if it cannot be given what its settings name."""
        try:
            arguments = self.form.arguments(input)
        except BadInput as exc:
            return ToolFailure("invalid_input", str(exc))
        timeout_s = (self.limits.timeout_s or TIMEOUT_S) * _EARLIER
        try:
            answer = ask(self.server, self.definition.tool, arguments, timeout_s)
        except ToolformerError:
            raise
        except Exception as exc:  # noqa: BLE001  the SDK's, a server's: each has its own reason
            return failure_of(exc, timeout_s)
        return result_of(answer)


def mcp_tool(
    reference: str,
    *,
    name: str = "",
    settings: MCPSettings | None = None,
    limits: ToolLimits | None = None,
    sessions: SessionLimits | None = None,
    declaration: ToolDeclaration | None = None,
    summary: str = "",
) -> MCPTool:
    """Connect to a server, and return one of its tools: what it says of itself makes the fingerprint and the prompts.

    Args:
        reference: `mcp+stdio:COMMAND#TOOL` or `mcp+https://HOST/PATH#TOOL`.
        name: the name in calls; by default the tool's own in CamelCase (`get_current_time`: `GetCurrentTime`).
        limits: how the tool may be called; by default 32 calls at a time, each 30 s at most.
        summary: one sentence in place of the server's description.

    Raises:
        UsageError: the reference or a setting is wrong, or the server's program does not exist.
        UnknownNameError: the server has no such tool.
        ToolError: the server cannot be reached.
    """
    parsed, tool = parse_reference(reference)
    sessions = sessions or SessionLimits()
    server = replace(parsed, settings=settings or MCPSettings(), limits=sessions)
    name = name or camel_case(tool)
    return MCPTool(
        server,
        definition_of(server, tool),
        key=key_of(name),
        name=name,
        limits=limits or ToolLimits(at_once=sessions.sessions * sessions.calls_at_once, timeout_s=TIMEOUT_S),
        declaration=declaration or ToolDeclaration(origin=f"{server.text}#{tool}"),
        summary=summary,
    )


def definition_of(server: Server, tool: str) -> ToolDefinition:
    """Connect to a server, and return what it says of a tool; `mcp_tool` says what is raised."""
    text = server.text
    try:
        tools, who = tools_of(server)
    except Unreachable as exc:
        raise ToolError(f"cannot connect to the MCP server {text}: {exc}") from exc
    except Overdue as exc:
        raise ToolError(f"the MCP server {text} did not answer within {server.limits.connect_s:g} s") from exc
    if tool not in tools:
        raise UnknownNameError(f"tool of {text}", tool, tools)
    found = tools[tool]
    schema = json.dumps(found.input_schema, separators=(",", ":"))
    return ToolDefinition(tool, found.description or found.title or "", schema, *who)


def result_of(answer: CallToolResult) -> ToolResult:
    text = _text(answer)
    text = text if text.strip() else _structured(answer.structured_content)
    if answer.is_error:
        return ToolFailure("tool_error", _detail(text) or "the tool reported an error without a text")
    if text.strip():
        return ToolResponse(text)
    if kinds := sorted({block.type for block in answer.content} - {"text"}):
        return ToolFailure("not_text", f"the tool answered with {', '.join(kinds)}, and no text")
    return ToolFailure("no_result", "the tool answered with nothing")


def _text(answer: CallToolResult) -> str:
    """Return the texts of an answer; a long one is not copied whole."""
    parts: list[str] = []
    left = MAX_TEXT_CHARS
    for block in answer.content:
        holder = block.resource if block.type == "resource" else block
        part = getattr(holder, "text", "")  # "" of a blob, an image, a sound or a link
        if part and left > 0:
            parts.append(part[:left])
            left -= len(parts[-1]) + 1
    return "\n".join(parts)


def _structured(value: Any) -> str:
    if isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]
    if value is None or value == {}:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text[:MAX_TEXT_CHARS]


def failure_of(error: Exception, timeout_s: float) -> ToolFailure:
    from mcp import MCPError
    from mcp.types import INVALID_PARAMS, PARSE_ERROR

    if isinstance(error, Overdue):
        return ToolFailure("timeout", f"no answer within {timeout_s:g} s", retryable=True)
    if isinstance(error, Unreachable):
        return ToolFailure("unreachable", _detail(str(error)), retryable=True)
    if isinstance(error, MCPError):
        reasons = {INVALID_PARAMS: "invalid_input", PARSE_ERROR: "invalid_response"}  # the SDK cannot parse the answer
        return ToolFailure(reasons.get(error.code, "tool_error"), _detail(error.message))
    return ToolFailure("invalid_response", _detail(f"{type(error).__name__}: {error}"))


def _detail(text: str) -> str:
    return " ".join(text[: 4 * _MAX_DETAIL_CHARS].split())[:_MAX_DETAIL_CHARS]
