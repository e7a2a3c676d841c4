"""Reads the annotation prompts: one text file per tool, with one `{text}` where the document is inserted.

The file is split at its placeholder, and nothing else in it is special, so demonstrations may hold braces, brackets and
quotes. In `<tool>.chain.txt` the tool's calls go on from other calls and their responses (`annotate.chains`). The
prompts beside this module are the defaults. A user's folder replaces all of them; the two are never mixed.
"""

from __future__ import annotations

from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import PromptError
from toolformer_core.records import Prompt

PLACEHOLDER = "{text}"
_SHIPPED = Path(__file__).resolve().parent


def load_prompt(tool_key: str, folder: Path | None = None) -> Prompt:
    """Return the prompt of a tool of the paper, from a user's folder, or the shipped one.

    Raises:
        PromptError: the file is missing, is not UTF-8, or does not hold exactly one `{text}`.
    """
    return read_prompt(tool_key, prompt_path(tool_key, folder))


def prompt_path(tool_key: str, folder: Path | None = None) -> Path:
    return (_SHIPPED if folder is None else folder) / f"{tool_key}.txt"


def chain_prompt_path(tool_key: str, folder: Path | None = None) -> Path:
    """Return where the prompt for a tool's calls in chains lies."""
    return prompt_path(f"{tool_key}.chain", folder)


def read_prompt(tool_key: str, path: Path) -> Prompt:
    """Return the prompt in a file; raises as `load_prompt`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as exc:
        names = ", ".join(f"{key}.txt" for key in TOOL_NAMES)
        raise PromptError(f"no prompt at {path}; a folder of prompts must hold: {names}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise PromptError(f"cannot read the prompt {path}: {exc}") from exc
    return prompt_from_text(tool_key, text, str(path))


def prompt_from_text(tool_key: str, text: str, source: str = "the prompt") -> Prompt:
    """Split a prompt at its placeholder; line ends become `\\n`, and the last one is removed.

    Raises:
        PromptError: there is not exactly one `{text}`.
    """
    text = text.replace("\r\n", "\n").removesuffix("\n")
    head, placeholder, tail = text.partition(PLACEHOLDER)
    if not placeholder:
        raise PromptError(f"{source} has no {PLACEHOLDER}; put it where the document is inserted")
    if PLACEHOLDER in tail:
        raise PromptError(f"{source} has more than one {PLACEHOLDER}; it needs exactly one")
    return Prompt(tool=tool_key, head=head, tail=tail)
