"""What a chat row says of a tool: its name in calls, its description, and the schema of its one argument.

A call has one input text, so a schema has one string parameter, or none for a tool that takes no input (the Calendar).
The parameter is called `input`; a tool of an MCP server whose input is one of the server's own arguments keeps that
name. The description of an MCP tool's parameter says how several arguments are written in the one text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of

__all__ = ["ARGUMENT", "ToolSchema", "schema_of"]

ARGUMENT = "input"


class InputForm(Protocol):
    """How an input gives several arguments; `tools.mcp.arguments` has it."""

    @property
    def whole(self) -> str | None: ...
    @property
    def template(self) -> str: ...
    @property
    def sentence(self) -> str: ...


@runtime_checkable
class HasForm(Protocol):
    """A tool whose input has a form."""

    @property
    def form(self) -> InputForm: ...


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as a chat row describes it."""

    name: str  # in calls
    description: str = ""
    argument: str | None = ARGUMENT  # None: the tool takes no input
    argument_description: str = ""

    def function(self) -> dict[str, Any]:
        """Return `{name, description, parameters}`, the parameters as a JSON schema."""
        about = {"description": self.argument_description} if self.argument_description else {}
        properties = {} if self.argument is None else {self.argument: {"type": "string", **about}}
        return {
            "name": self.name,
            "description": self.description,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        }

    def tool(self) -> dict[str, Any]:
        """Return `{type: function, function}`, as OpenAI and chat templates have it."""
        return {"type": "function", "function": self.function()}

    def arguments(self, input: str) -> dict[str, str]:
        """Return the arguments of a call with this input; of a tool without an argument there are none."""
        return {self.argument or ARGUMENT: input} if self.argument is not None or input else {}


def schema_of(tool: Tool) -> ToolSchema:
    """Return what a chat row says of a tool.

    A tool of which every declared example has an empty input takes none.
    """
    if isinstance(tool, HasForm):
        name = tool.form.whole or ARGUMENT
        argument = name if tool.form.template else None
        return ToolSchema(tool.name, tool.description, argument, tool.form.sentence if argument else "")
    examples = declaration_of(tool).examples
    without_input = bool(examples) and not any(input_ for _, input_ in examples)
    return ToolSchema(tool.name, tool.description, None if without_input else ARGUMENT)
