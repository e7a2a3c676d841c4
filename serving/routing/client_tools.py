"""A client's function tool: what the router ranks, and how the text of a call becomes arguments that fit its schema.

A call's input is the one argument as it is, `name=value, name=value`, or a JSON object. The mock response is
`x-mock-response` of the function or of its parameters; without one the pattern score is 0.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from serving.errors import RequestError, check_text, invalid
from serving.routing.schemas import FunctionTool
from toolformer_core.config import canonical_json
from toolformer_core.grounding.library import LibraryTool, zero_shot
from toolformer_core.records import Call, ToolFailure, ToolResult, digest_of, unencodable
from toolformer_core.syntax import linearize
from toolformer_core.tools.arguments.form import ArgumentForm, BadInput
from toolformer_core.tools.arguments.values import BadValue, read_json
from toolformer_core.tools.responses import response_line
from toolformer_core.tools.schema_check import Check, SchemaProblem, checker

PREFIX = "client:"  # of a client's tool's key, which no tool of the server's has
_MAX_EXAMPLES = 3
_MAX_EXAMPLE_CHARS = 200
_MAX_MOCK_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A function tool, behind the interface of all tools; its `run` always fails."""

    function: str  # its name at the client
    name: str
    description: str
    fingerprint: str
    form: ArgumentForm

    @property
    def key(self) -> str:
        return PREFIX + self.function

    def load(self) -> None: ...

    def run(self, input: str, context: str = "") -> ToolResult:
        return ToolFailure("not_enabled", "the client runs this tool")

    def arguments(self, text: str) -> str:
        """Return the arguments that a call's input gives, as JSON, or raise `BadInput`."""
        given: Any = None
        with suppress(BadValue):
            given = read_json(text)
        if not isinstance(given, dict) or not given.keys() <= {*self.form.required, *self.form.optional}:
            given = self.form.arguments(text)
        elif problem := self.form.problem(given):
            raise BadInput(problem)
        return json.dumps(given, ensure_ascii=False)


def client_tools_of(tools: Sequence[FunctionTool]) -> tuple[LibraryTool, ...]:
    """Return a request's tools, ready to be ranked; refuse (400) two of one name, and what cannot be used."""
    out: dict[str, LibraryTool] = {}
    for i, tool in enumerate(tools):
        where = f"tools[{i}].function"
        if tool.function.name in out:
            raise invalid(f"{where}.name", f"two tools have the name {tool.function.name!r}; rename one")
        out[tool.function.name] = _library_tool(tool, where)
    return tuple(out.values())


def _library_tool(tool: FunctionTool, where: str) -> LibraryTool:
    function = tool.function
    schema = {"type": "object", "properties": {}} if function.parameters is None else function.parameters
    form = ArgumentForm(schema, _checker(schema, f"{where}.parameters"))
    check_text(function.description or "", f"{where}.description")
    name = name_in_calls(function.name)
    description = " ".join((function.description or function.name.replace("_", " ").replace("-", " ")).split())
    fingerprint = digest_of("client tool", function.name, description, canonical_json(schema))
    client = ClientTool(function.name, name, description, fingerprint, form)
    shown = zero_shot(client.key, name, _described(client, schema), form.template)
    mock = function.mock_response or schema.get("x-mock-response") or ""
    if not isinstance(mock, str):
        mock = json.dumps(mock, ensure_ascii=False)
    check_text(mock, f"{where}.x-mock-response")
    return LibraryTool(client, shown, response_line(mock, _MAX_MOCK_CHARS), mocked=True)


def _checker(schema: Mapping[str, Any], where: str) -> Check:
    try:
        text = json.dumps(schema, ensure_ascii=False)
        if flaw := unencodable(text):
            raise SchemaProblem(f"it is not UTF-8 text ({flaw})")
        if schema.get("type", "object") != "object":
            raise SchemaProblem("its type must be 'object'")
        return checker(schema)
    except (SchemaProblem, RecursionError) as exc:
        message = f"the schema of {where} cannot be used: {exc}"
        raise RequestError(400, message, param=where, code="invalid_function_parameters") from exc


def _described(client: ClientTool, schema: Mapping[str, Any]) -> str:
    """Return what the prompt says of a tool: description, form of the input, and the schema's examples."""
    examples = schema.get("examples")
    shown = [call_input(example) for example in examples if isinstance(example, Mapping)] if examples else []
    calls = [linearize(Call(client.name, text)) for text in shown if len(text) <= _MAX_EXAMPLE_CHARS]
    examples_of_calls = f" For example:{''.join(calls[:_MAX_EXAMPLES])}" if calls else ""
    return f"{client.description} {client.form.sentence}{examples_of_calls}"


def name_in_calls(function: str) -> str:
    name = "".join(c if c.isalnum() else "_" for c in function)
    return f"_{name}" if name[:1].isdigit() else name


def call_input(arguments: Mapping[str, Any]) -> str:
    """Return arguments as the input of a call: the only argument if it is a text, else JSON."""
    (only,) = arguments.values() if len(arguments) == 1 else (None,)
    if isinstance(only, str):
        return " ".join(only.split())
    return json.dumps(arguments, ensure_ascii=False) if arguments else ""
