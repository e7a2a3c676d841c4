"""The annotation prompts of a tool: the shipped ones, the user's from a folder, or the one that the tool declares."""

from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.prompts.load import load_prompt, prompt_from_text
from toolformer_core.records import Prompt
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of

_CHAIN = ".chain.txt"


def prompt_for(tool: Tool, folder: Path | None = None) -> Prompt:
    """Return a tool's annotation prompt; a folder's replace all shipped ones, and a user's tool may keep its own.

    A PromptError if there is none, it cannot be read, or its demonstrations do not call the tool.
    """
    if tool.key in TOOL_NAMES or (folder is not None and (folder / f"{tool.key}.txt").is_file()):
        return load_prompt(tool.key, folder)
    return prompt_from_text(tool.key, declaration_of(tool).check_prompt(tool.name), f"the prompt of {tool.name}")


def chain_prompt_for(tool: Tool, folder: Path | None = None) -> Prompt:
    """Return the prompt for calls after other calls, `<tool>.chain.txt`, else the tool's other one (`prompt_for`)."""
    if tool.key in TOOL_NAMES if folder is None else (folder / f"{tool.key}{_CHAIN}").is_file():
        return load_prompt(tool.key, folder, _CHAIN)
    return prompt_for(tool, folder)
