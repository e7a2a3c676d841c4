"""What a chat row says of a tool: its name in calls, its description, and the schema of its arguments.

A tool whose calls give arguments (of an MCP server, or a function with annotations) has their schema, and a call its
arguments, with their types. Any other takes one text, the parameter `input`, or nothing (the Calendar).
"""

from dataclasses import dataclass
from typing import Any

from toolformer_core.tools.arguments.form import ArgumentForm
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of

ARGUMENT = "input"


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as a chat row describes it."""

    name: str  # in calls
    description: str = ""
    argument: str | None = ARGUMENT  # of a tool without a form; None: the tool takes no input
    form: ArgumentForm | None = None  # how an input gives arguments

    def function(self) -> dict[str, Any]:
        """Return `{name, description, parameters}`, the parameters as a JSON schema."""
        properties = {} if self.argument is None else {self.argument: {"type": "string"}}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        if self.form is not None:
            parameters |= {"properties": {}, "required": []} | self.form.schema
        return {"name": self.name, "description": self.description, "parameters": parameters}

    def tool(self) -> dict[str, Any]:
        """Return `{type: function, function}`, as OpenAI and chat templates have it."""
        return {"type": "function", "function": self.function()}

    def arguments(self, input: str) -> dict[str, Any]:
        """Return the arguments of a call with this input, none of a tool without an argument.

        A BadInput if the tool's form, which may be another than when the call was made, does not allow the input.
        """
        if self.form is not None:
            return self.form.arguments(input)
        return {self.argument or ARGUMENT: input} if self.argument is not None or input else {}


def schema_of(tool: Tool) -> ToolSchema:
    """Return what a chat row says of a tool; one of which every declared example has an empty input takes none."""
    examples = declaration_of(tool).examples
    without_input = bool(examples) and not any(input_ for _, input_ in examples)
    return ToolSchema(tool.name, tool.description, None if without_input else ARGUMENT, getattr(tool, "form", None))
