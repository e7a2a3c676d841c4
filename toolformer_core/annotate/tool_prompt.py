"""The annotation prompt of a tool: the shipped one, the user's from a folder, or the one that the tool declares."""

from __future__ import annotations

from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.prompts.load import load_prompt, prompt_from_text
from toolformer_core.records import Prompt
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of

__all__ = ["prompt_for"]


def prompt_for(tool: Tool, folder: Path | None = None) -> Prompt:
    """Return a tool's annotation prompt.

    Args:
        tool: one of the paper's, or a user's.
        folder: a user's prompts, which replace all shipped ones; a user's tool that is not in it keeps its own.

    Raises:
        PromptError: there is none, it cannot be read, or its demonstrations do not call the tool.
    """
    if tool.key in TOOL_NAMES:
        return load_prompt(tool.key, folder)
    if folder is not None and (path := folder / f"{tool.key}.txt").is_file():
        return prompt_from_text(tool.key, path.read_text("utf-8-sig"), str(path))
    return prompt_from_text(tool.key, declaration_of(tool).check_prompt(tool.name), f"the prompt of {tool.name}")
