"""The annotation prompts of a tool: the shipped ones, the user's from a folder, or the one that the tool declares."""

from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.prompts.load import chain_prompt_path, load_prompt, prompt_from_text, prompt_path, read_prompt
from toolformer_core.records import Prompt
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of


def prompt_for(tool: Tool, folder: Path | None = None) -> Prompt:
    """Return a tool's annotation prompt; a folder's replace all shipped ones, and a user's tool may keep its own.

    A PromptError if there is none, it cannot be read, or its demonstrations do not call the tool.
    """
    if tool.key in TOOL_NAMES:
        return load_prompt(tool.key, folder)
    if folder is not None and (path := prompt_path(tool.key, folder)).is_file():
        return read_prompt(tool.key, path)
    return prompt_from_text(tool.key, declaration_of(tool).check_prompt(tool.name), f"the prompt of {tool.name}")


def chain_prompt_for(tool: Tool, folder: Path | None = None) -> Prompt:
    """Return the prompt for calls after other calls, `<tool>.chain.txt`, else the tool's other one (`prompt_for`)."""
    shipped = folder is None and tool.key in TOOL_NAMES
    if shipped or (folder is not None and chain_prompt_path(tool.key, folder).is_file()):
        return read_prompt(tool.key, chain_prompt_path(tool.key, folder))
    return prompt_for(tool, folder)
