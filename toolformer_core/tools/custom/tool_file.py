"""Tool files: a YAML file that describes one tool of an HTTP endpoint or an MCP server (docs/tools.md shows some).

Paths are relative to the file. It is read by PyYAML's safe loader, which makes plain values only.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from toolformer_core.errors import UsageError
from toolformer_core.tools.base import Tool, ToolLimits
from toolformer_core.tools.custom.http_tool import HTTPTemplate, HTTPTool
from toolformer_core.tools.custom.python_tool import prompt_of
from toolformer_core.tools.custom.reference import camel_case, key_of
from toolformer_core.tools.declaration import DocumentFilter, ToolDeclaration
from toolformer_core.tools.mcp import MCPSettings, mcp_tool

_FILTER = {one.name for one in fields(DocumentFilter)}
_DECLARED = {*_FILTER, "tau_s", "top_k", "draws", "tau_f", "keep_repeats", "numeric", "mock_response"}
_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)


class _Example(BaseModel):
    model_config = _STRICT

    question: str
    input: str


class ToolFile(BaseModel):
    """What a tool file may hold."""

    model_config = _STRICT

    name: str | None = Field(None, pattern=r"^[A-Za-z]\w*$")
    description: str | None = None
    version: str = ""
    http: HTTPTemplate | None = None
    mcp: str | None = None
    env: list[str] = Field(default_factory=list, description="Environment variables that an MCP child process gets")
    headers: dict[str, str] = Field(default_factory=dict, description="Of an MCP server at a URL: header -> variable")
    prompt: str | None = None
    patterns: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    language: str | None = None
    min_chars: int = 0
    max_chars: int | None = None
    tau_s: float | None = Field(None, ge=0, lt=1)
    top_k: int | None = Field(None, gt=0)
    draws: int | None = Field(None, gt=0)
    tau_f: float | None = None
    keep_repeats: bool = False
    numeric: bool = False
    examples: list[_Example] = Field(default_factory=list)
    mock_response: str | None = Field(None, pattern=r"\S")
    limits: ToolLimits | None = None

    @field_validator("limits")
    @classmethod
    def _check_limits(cls, limits: ToolLimits | None) -> ToolLimits | None:
        if limits is not None and not (limits.at_once <= 1024 and limits.tries <= 10 and limits.cost >= 0):
            raise ValueError("limits: at_once is at most 1024, tries at most 10, and cost at least 0")
        return limits

    @field_validator("examples", mode="before")
    @classmethod
    def _mappings(cls, value: Any) -> Any:
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise ValueError("write each example as a mapping of question and input")
        return value


def load_tool_file(path: Path, name: str = "") -> Tool:
    """Return the tool that a file describes, with a name in calls ("": its own); a `UsageError` names a wrong field."""
    described = _read(path)
    if (described.http is None) == (described.mcp is None):
        raise UsageError(f"{path}: give exactly one of http and mcp")
    chosen = name or described.name or ""
    try:
        prompt, source = prompt_of(described.prompt, path.with_suffix(".txt"))
        options = described.model_dump(include=_DECLARED, exclude_none=True)
        options["examples"] = tuple((one.question, one.input) for one in described.examples)
        declaration = ToolDeclaration.of(options, origin=str(path), prompt=prompt, prompt_source=source)
        if described.http is None:
            return mcp_tool(
                described.mcp or "",
                name=chosen,
                settings=MCPSettings(env=tuple(described.env), headers=described.headers),
                limits=described.limits,
                declaration=declaration,
                summary=described.description or "",
            )
        name = chosen or camel_case(path.stem)
        limits = {} if described.limits is None else {"limits": described.limits}
        return HTTPTool(
            described.http,
            name=name,
            key=key_of(name),
            description=described.description or f"Asks {described.http.url.partition('?')[0]}.",
            version=described.version,
            declaration=declaration,
            **limits,
        )
    except UsageError as exc:
        raise type(exc)(f"{path}: {exc}") if type(exc) is UsageError else exc from None


def _read(path: Path) -> ToolFile:
    import yaml

    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except OSError as exc:
        raise UsageError(f"cannot read the tool file {path}: {exc.strerror or exc}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} is not YAML: {' '.join(str(exc).split())}") from exc
    try:
        return ToolFile.model_validate(value)
    except UsageError as exc:
        raise UsageError(f"{path}: {exc}") from None
    except ValidationError as exc:
        first = exc.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{path}: {place}: {first['msg']}") from None
