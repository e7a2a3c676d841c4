"""The options of tools of commands that are no flow: `generate`, `chat`, `serve`, `diagnose`, `tools test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from flows.forms.calls import Trigger
from flows.forms.fields import Option, Passages, QAReader, References, ToolChoice, Tools, TranslatorModel
from toolformer_core.config import TOOL_NAMES

if TYPE_CHECKING:
    from toolformer_core.tools.base import Tool

_TOOLS = Option("Tools")


class ToolData(BaseModel):
    """Where the paper's tools find their data."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    passages: Annotated[Passages, _TOOLS] = None
    qa_reader: Annotated[QAReader, _TOOLS] = None
    translator: Annotated[TranslatorModel, _TOOLS] = None


class ToolOptions(ToolData, ToolChoice):
    """The tools, and where they find their data."""

    tools: Annotated[Tools, _TOOLS] = Field(list(TOOL_NAMES), description="Tools that may be called")
    tool: Annotated[References, _TOOLS] = []


class CallOptions(ToolOptions):
    """The tools, and when a model calls them while it writes."""

    trigger: Annotated[Trigger, _TOOLS] = ""


def build_chosen(options: ToolOptions) -> dict[str, Tool]:
    """Return the tools that the options name, by key."""
    from flows.forms.chosen_tools import chosen_tools

    return chosen_tools([*options.tools, *options.tool], options.passages, options.qa_reader, options.translator)[0]
