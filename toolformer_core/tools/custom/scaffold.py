"""What `tools new` writes: a tool that works as it stands, its annotation prompt, and a test."""

import json
import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import UsageError
from toolformer_core.tools.custom.reference import camel_case, key_of
from toolformer_core.tools.declaration import DRAFT

_FUNCTION = re.compile(r"[a-z][a-z0-9_]*")

_TEMPLATES = Path(__file__).with_name("templates")  # for `str.format`


def new_python_tool(name: str) -> dict[str, str]:
    """Return the files of a new Python tool, file name -> text; a `UsageError` if its name would not work."""
    if not _FUNCTION.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} cannot name a function; use lower-case letters, digits and _, e.g. miles")
    if name in sys.stdlib_module_names:  # beside the test, the file would be imported in its place
        raise UsageError(f"{name!r} is a module of Python's own, and {name}.py would hide it; choose another name")
    if key_of(camel_case(name)) in TOOL_NAMES:
        raise UsageError(f"{name!r} is one of the paper's tools; choose another name")
    words = {"key": name, "name": camel_case(name)}
    return {
        f"{name}.py": _filled("tool.py.txt", words),
        f"{name}.txt": _filled("tool.prompt.txt", words),
        f"test_{name}.py": _filled("tool.test.txt", words),
    }


def new_mcp_tool(key: str, reference: str, description: str, form: str) -> dict[str, str]:
    """Return a tool file and the draft of a prompt for a tool of an MCP server: file name -> text.

    `key` is the files' name, `form` how an input is written, e.g. `source_timezone=..., time=...`.
    """
    description = " ".join(description.split())
    description += "" if description.endswith((".", "!", "?")) else "."
    name = camel_case(key)
    words = {"key": key_of(name), "name": name, "form": form, "description": description, "draft": DRAFT}
    quoted = {"reference": json.dumps(reference), "description": json.dumps(description, ensure_ascii=False)}
    return {
        f"{words['key']}.yaml": _filled("mcp.yaml.txt", {**words, **quoted}),  # JSON strings are YAML strings
        f"{words['key']}.txt": _filled("mcp.prompt.txt", words),
    }


def _filled(template: str, words: Mapping[str, str]) -> str:
    return (_TEMPLATES / template).read_text(encoding="utf-8").format(**words)
