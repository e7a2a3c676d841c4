"""References: the texts by which a user names a tool, on the command line, in a form or in a file.

docs/tools.md has the forms; `Name=` in front chooses the tool's name in calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toolformer_core.errors import UsageError

Kind = Literal["name", "file", "module", "yaml", "mcp"]

_CHOSEN_NAME = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)
_KINDS: dict[Kind, str] = {  # the first one counts
    "mcp": r"(mcp\+.*)",
    "yaml": r"(.*\.ya?ml)",
    "file": r"(.+\.py):([A-Za-z_]\w*)",
    "module": r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)",
    "name": r"([A-Za-z][\w-]*)",
}
_FORMS = (
    "a name, FILE.py:FUNCTION, PACKAGE.MODULE:TOOL, a YAML file, mcp+stdio:COMMAND#TOOL or mcp+https://HOST/PATH#TOOL"
)


@dataclass(frozen=True, slots=True)
class ToolReference:
    """A parsed reference."""

    kind: Kind  # what the rest of it is
    target: str  # the name, the file, the module, or of MCP the whole reference
    attribute: str = ""  # the function or tool in a file or module, else ""
    name: str = ""  # the name in calls that the user chose, else ""

    def __str__(self) -> str:
        chosen = f"{self.name}=" if self.name else ""
        return chosen + self.target + (f":{self.attribute}" if self.attribute else "")

    def absolute(self, folder: Path) -> ToolReference:
        """Return the reference with its file's whole path, as processes in other folders need it."""
        if self.kind not in ("file", "yaml"):
            return self
        path = Path(self.target).expanduser()
        return replace(self, target=str(folder / path))  # `folder` counts only if the path is not absolute


def is_reference(text: str) -> bool:
    return any(mark in text for mark in ":=/") or text.endswith((".yaml", ".yml"))


def parse_reference(text: str) -> ToolReference:
    """Parse a reference; a `UsageError` if it has none of the forms."""
    text = text.strip()
    name = ""
    if chosen := _CHOSEN_NAME.fullmatch(text):
        name, text = chosen.groups()
    for kind, pattern in _KINDS.items():
        if match := re.fullmatch(pattern, text, re.DOTALL):
            return replace(ToolReference(kind, *match.groups()), name=name)
    if text.endswith(".py"):
        raise UsageError(f"{text!r} names a file, not a tool in it; write {text}:FUNCTION")
    raise UsageError(f"{text!r} names no tool; give {_FORMS}")


def camel_case(name: str) -> str:
    """Return a name in CamelCase, as calls are written: `get_current_time` becomes `GetCurrentTime`."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    joined = "".join(word[0].upper() + word[1:] for word in words)
    return joined if joined[:1].isalpha() else f"Tool{joined}"


def key_of(name: str) -> str:
    """Return a tool's key for its name in calls: `GetCurrentTime` becomes `get_current_time`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
