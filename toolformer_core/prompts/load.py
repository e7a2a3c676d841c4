"""Reads the annotation prompts: one text file per tool, with one `{text}` where the document is inserted.

Nothing else in the file is special. In `<tool>.chain.txt` the tool's calls go on from other calls and their responses.
The prompts beside this module are the defaults; a user's folder replaces all of them.
"""

from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import PromptError
from toolformer_core.records import Prompt

PLACEHOLDER = "{text}"
_SHIPPED = Path(__file__).resolve().parent


def load_prompt(tool_key: str, folder: Path | None = None, suffix: str = ".txt") -> Prompt:
    """Return the prompt `<tool><suffix>` of a user's folder, or the shipped one; raises a PromptError."""
    path = (_SHIPPED if folder is None else folder) / f"{tool_key}{suffix}"
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as exc:
        names = ", ".join(f"{key}.txt" for key in TOOL_NAMES)
        raise PromptError(f"no prompt at {path}; a folder of prompts must hold: {names}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise PromptError(f"cannot read the prompt {path}: {exc}") from exc
    return prompt_from_text(tool_key, text, str(path))


def prompt_from_text(tool_key: str, text: str, source: str = "the prompt") -> Prompt:
    """Split a prompt at its one `{text}`, else a PromptError; line ends become `\\n`, and the last one is removed."""
    text = text.replace("\r\n", "\n").removesuffix("\n")
    head, placeholder, tail = text.partition(PLACEHOLDER)
    if not placeholder:
        raise PromptError(f"{source} has no {PLACEHOLDER}; put it where the document is inserted")
    if PLACEHOLDER in tail:
        raise PromptError(f"{source} has more than one {PLACEHOLDER}; it needs exactly one")
    return Prompt(tool=tool_key, head=head, tail=tail)
