"""What a chat row says of a tool: its name in calls, its description, and the schema of its one argument.

A call has one input text, so a schema has one string parameter, or none for a tool that takes no input (the Calendar).
The parameter is called `input`; a tool of an MCP server whose input is one of the server's own arguments keeps that
name. The description of an MCP tool's parameter says how several arguments are written in the one text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of

__all__ = ["ARGUMENT", "ToolSchema", "schema_of"]

ARGUMENT = "input"


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
    if (form := getattr(tool, "form", None)) is not None:  # an MCP server's: see `tools.mcp.arguments.ArgumentForm`
        argument = (form.whole or ARGUMENT) if form.template else None
        return ToolSchema(tool.name, tool.description, argument, form.sentence if argument else "")
    examples = declaration_of(tool).examples
    without_input = bool(examples) and not any(input_ for _, input_ in examples)
    return ToolSchema(tool.name, tool.description, None if without_input else ARGUMENT)
