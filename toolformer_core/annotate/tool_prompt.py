"""The annotation prompts of a tool: the shipped ones, the user's from a folder, or the one that the tool declares.

A tool may have several wordings of its prompt, numbered from 1; a tool that declares its prompt has one. For calls in
chains there may be a prompt of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import PromptError
from toolformer_core.prompts.load import (
    chain_prompt_path,
    load_prompt,
    prompt_from_text,
    prompt_path,
    read_prompt,
    wordings_in,
)
from toolformer_core.records import Prompt
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of


def prompt_for(tool: Tool, folder: Path | None = None) -> Prompt:
    """Return a tool's annotation prompt: its first wording.

    Args:
        tool: one of the paper's, or a user's.
        folder: a user's prompts, which replace all shipped ones; a user's tool that is not in it keeps its own.

    Raises:
        PromptError: there is none, it cannot be read, or its demonstrations do not call the tool.
    """
    if tool.key in TOOL_NAMES:
        return load_prompt(tool.key, folder)
    if folder is not None and (path := prompt_path(tool.key, folder)).is_file():
        return read_prompt(tool.key, path)
    return prompt_from_text(tool.key, declaration_of(tool).check_prompt(tool.name), f"the prompt of {tool.name}")


def chain_prompt_for(tool: Tool, folder: Path | None = None) -> Prompt:
    """Return the prompt with which a tool's calls are drawn behind those of others.

    Args:
        tool: one of the paper's, or a user's.
        folder: as for `prompt_for`; it may hold `<tool>.chain.txt`. Where there is none, the tool's first wording is
            used.

    Raises:
        PromptError: as `prompt_for`.
    """
    shipped = folder is None and tool.key in TOOL_NAMES
    if shipped or (folder is not None and chain_prompt_path(tool.key, folder).is_file()):
        return read_prompt(tool.key, chain_prompt_path(tool.key, folder))
    return prompt_for(tool, folder)


def prompts_for(tool: Tool, wordings: Sequence[int] | None = (1,), folder: Path | None = None) -> tuple[Prompt, ...]:
    """Return those of some wordings of a tool's prompt that the tool has, in ascending order; at least one.

    Args:
        tool: as for `prompt_for`.
        wordings: numbers from 1; None: all that the tool has.
        folder: as for `prompt_for`; it may hold `<tool>.2.txt` and so on beside `<tool>.txt`.

    Raises:
        PromptError: the tool has none of these wordings, or see `prompt_for`.
    """
    chosen = chosen_wordings(tool.key, wordings, folder)
    return tuple(
        prompt_for(tool, folder) if n == 1 else read_prompt(tool.key, prompt_path(tool.key, folder, n), n)
        for n in chosen
    )


def chosen_wordings(key: str, wordings: Sequence[int] | None, folder: Path | None = None) -> list[int]:
    """Return the numbers of those of some wordings that a tool has, ascending; at least one.

    Args:
        key: the tool's key.
        wordings: as for `prompts_for`.
        folder: as for `prompts_for`.

    Raises:
        PromptError: the tool has none of them.
    """
    has = [1, *(wordings_in(key, folder) if key in TOOL_NAMES or folder is not None else ())]
    chosen = has if wordings is None else sorted({*wordings} & {*has})
    if not chosen:
        asked, those = (", ".join(map(str, sorted(numbers))) for numbers in (wordings or (), has))
        place = f" in {folder}" if folder is not None else ""
        raise PromptError(
            f"{key} has no wording {asked}{place}, only {those}; name one that it has, or put {key}.N.txt into a "
            "folder of prompts (--prompts)"
        )
    return chosen
