"""Tool files: a YAML file that describes one tool of an HTTP endpoint, an MCP server or a Python file.

    name: Population                     # in calls
    description: Gives the population of a country.
    prompt: population.txt               # beside this file; default: the file's own name with .txt
    keywords: [population, inhabitants]
    tau_f: 0.5
    examples:                            # by which a tool is chosen for a query
      - question: How many people live in Chad?
        input: Chad
    mock_response: 18000000 people       # by which it can be ranked without being asked
    http:                                # or `mcp: mcp+stdio:COMMAND#tool`, or `python: tools.py:function`
      url: https://example.org/population?country={input}
      headers: {Authorization: "Bearer ${POPULATION_KEY}"}
      response: "{population}"

Paths are relative to the file. A secret is written as `${NAME}`, the name of an environment variable. The file is read
by PyYAML's safe loader, which makes plain values only. What a tool does with an input is not known here.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from toolformer_core.errors import UsageError
from toolformer_core.records import digest_of
from toolformer_core.tools.base import REMOTE_TTL_S, Tool, ToolLimits
from toolformer_core.tools.custom.http_tool import HTTPTemplate, HTTPTool
from toolformer_core.tools.custom.python_tool import PythonTool, load_python_tool, read_prompt
from toolformer_core.tools.custom.reference import camel_case, key_of, parse_reference
from toolformer_core.tools.declaration import DocumentFilter, ToolDeclaration

_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)


class _HTTP(BaseModel):
    """A request, and what is read from its response; see `HTTPTemplate`."""

    model_config = _STRICT

    url: str
    method: Literal["GET", "POST", "PUT"] = "GET"
    headers: dict[str, str] = Field(default_factory=dict)
    json_: Any = Field(None, alias="json")
    body: str | None = None
    response: str | None = None
    ttl_s: float = Field(REMOTE_TTL_S, gt=0)


class _Limits(BaseModel):
    """How the tool may be asked; see `ToolLimits`."""

    model_config = _STRICT

    at_once: int = Field(32, gt=0, le=1024)
    pool: Literal["threads", "processes"] = "threads"
    per_second: float | None = Field(None, gt=0)
    timeout_s: float | None = Field(None, gt=0)
    tries: int = Field(2, gt=0, le=10)
    cost: float = Field(0.0, ge=0)


class _Example(BaseModel):
    """A question, and the call's input that answers it."""

    model_config = _STRICT

    question: str
    input: str


class ToolFile(BaseModel):
    """What a tool file may hold."""

    model_config = _STRICT

    name: str | None = Field(None, pattern=r"^[A-Za-z]\w*$")
    description: str | None = None
    version: str = ""
    http: _HTTP | None = None
    mcp: str | None = None
    env: list[str] = Field(default_factory=list, description="Environment variables that an MCP child process gets")
    headers: dict[str, str] = Field(default_factory=dict, description="Of an MCP server at a URL: header -> variable")
    python: str | None = None
    prompt: str | None = None
    patterns: list[str] = Field(default_factory=list)
    keywords: list[str] = Field(default_factory=list)
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
    limits: _Limits | None = None

    @field_validator("examples", mode="before")
    @classmethod
    def _mappings(cls, value: Any) -> Any:
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise ValueError("write each example as a mapping of question and input")
        return value


def load_tool_file(path: Path, name: str = "") -> Tool:
    """Return the tool that a file describes.

    Args:
        path: the YAML file.
        name: its name in calls; "": the file's own.

    Raises:
        UsageError: the file cannot be read, or something in it is wrong; the message names the field.
    """
    described = _read(path)
    if sum(source is not None for source in (described.http, described.mcp, described.python)) != 1:
        raise UsageError(f"{path}: give exactly one of http, mcp and python")
    chosen = name or described.name or ""
    limits = None if described.limits is None else ToolLimits(**described.limits.model_dump())
    try:
        if described.http is not None:
            return _http_tool(path, described, described.http, chosen or camel_case(path.stem), limits)
        if described.mcp is not None:
            return _mcp_tool(path, described, described.mcp, chosen, limits)
        return _python_tool(path, described, described.python or "", chosen, limits)
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
    except ValidationError as exc:
        first = exc.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{path}: {place}: {first['msg']}") from None


def _declaration(path: Path, described: ToolFile, default: ToolDeclaration | None = None) -> ToolDeclaration:
    """Return what the file declares; what it leaves out, `default` decides."""
    if described.prompt is not None and "{text}" in described.prompt:
        prompt, source = described.prompt, ""
    else:
        place = path.parent / (described.prompt or f"{path.stem}.txt")
        prompt, source = read_prompt(place, required=described.prompt is not None), str(place)
    declared = ToolDeclaration(
        origin=str(path),
        prompt=prompt,
        prompt_source=source,
        filter=DocumentFilter(
            tuple(described.patterns),
            tuple(described.keywords),
            described.language,
            described.min_chars,
            described.max_chars,
        ),
        tau_s=described.tau_s,
        top_k=described.top_k,
        draws=described.draws,
        tau_f=described.tau_f,
        keep_repeats=described.keep_repeats or (default is not None and default.keep_repeats),
        numeric=described.numeric or (default is not None and default.numeric),
        examples=tuple((one.question, one.input) for one in described.examples),
        mock_response=described.mock_response or "",
    )
    if default is None:
        return declared
    left_out = [one.name for one in fields(declared) if getattr(declared, one.name) in (None, "", (), DocumentFilter())]
    missing = {name: getattr(default, name) for name in left_out}
    return replace(declared, **(missing if declared.prompt else missing | {"prompt_source": default.prompt_source}))


def _http_tool(path: Path, described: ToolFile, http: _HTTP, name: str, limits: ToolLimits | None) -> Tool:
    template = HTTPTemplate(http.url, http.method, http.headers, http.json_, http.body, http.response)
    return HTTPTool(
        template,
        name=name,
        key=key_of(name),
        description=described.description or f"Asks {http.url.partition('?')[0]}.",
        version=described.version,
        declaration=_declaration(path, described),
        limits=limits,
        ttl_s=http.ttl_s,
    )


def _mcp_tool(path: Path, described: ToolFile, reference: str, name: str, limits: ToolLimits | None) -> Tool:
    from toolformer_core.tools.mcp import MCPSettings, mcp_tool

    return mcp_tool(
        reference,
        name=name or None,
        key=key_of(name) if name else None,
        settings=MCPSettings(env=tuple(described.env), headers=described.headers),
        limits=limits,
        declaration=_declaration(path, described),
        summary=described.description or "",
    )


def _python_tool(path: Path, described: ToolFile, text: str, name: str, limits: ToolLimits | None) -> Tool:
    made = load_python_tool(parse_reference(text).absolute(path.parent))
    if not isinstance(made, PythonTool):
        raise UsageError("python: name a function; an object says itself what it declares")
    tool = PythonTool(
        made.function,
        name=name or made.name,
        description=described.description or made.description,
        version=digest_of(described.version, made.version) if described.version else made.version,
        declaration=_declaration(path, described, made.declaration),
        limits=limits or made.limits,
    )
    tool.reference = parse_reference(f"{name}={path}" if name else str(path))
    return tool
