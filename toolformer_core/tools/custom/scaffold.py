"""What `tools new` writes: a tool that works as it stands, its annotation prompt, and a test, to be changed from there.

It makes texts and knows no files.
"""

from __future__ import annotations

import keyword
import re
import sys

from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import UsageError
from toolformer_core.tools.custom.reference import camel_case, key_of
from toolformer_core.tools.declaration import DRAFT

_FUNCTION = re.compile(r"[a-z][a-z0-9_]*")

_PYTHON = r'''"""{name}: converts miles to kilometres. Try it: toolformer tools test {key}.py:{key} '26.2 miles'."""

import re

from toolformer_core import tool


@tool(
    keywords=["mile", "miles"],
    tau_s=0.0,
    top_k=10,
    draws=10,
    tau_f=0.5,
    examples=[
        ("How many kilometres are 26.2 miles?", "26.2 miles"),
        ("The lighthouse is 5 miles away. How far is that in kilometres?", "5 miles"),
        ("What are 120 miles in the metric system?", "120 miles"),
    ],
    mock_response="42.2 km",
)
def {key}(text: str) -> str | None:
    """Converts miles to kilometres."""
    number = re.search(r"\d[\d,]*(?:\.\d+)?", text)
    return f"{{float(number[0].replace(',', '')) * 1.609344:.1f}} km" if number else None
'''

_PROMPT = """Add calls to a converter where a distance in kilometres follows from one in miles. A call is written \
[{name}(distance)], right before the kilometres that it gives. Here are some examples:

Input: The marathon is 26.2 miles long, that is 42.2 km, and starts at noon.
Output: The marathon is 26.2 miles long, that is [{name}(26.2 miles)] 42.2 km, and starts at noon.

Input: From the harbour to the lighthouse it is 5 miles, or 8.0 km, along the coast.
Output: From the harbour to the lighthouse it is 5 miles, or [{name}(5 miles)] 8.0 km, along the coast.

Input: She drove 120 miles that day, which is 193.1 km, without a break.
Output: She drove 120 miles that day, which is [{name}(120 miles)] 193.1 km, without a break.

Input: The old line ran for 48 miles, 77.2 km, to the border.
Output: The old line ran for 48 miles, [{name}(48 miles)] 77.2 km, to the border.

Input: {{text}}
Output:
"""

_TEST = '''"""Tests of {name}: python -m pytest test_{key}.py."""

from pathlib import Path

import pytest

from toolformer_core import ToolFailure, ToolResponse, build_tools

(TOOL,) = build_tools([f"{{Path(__file__).parent / '{key}.py'}}:{key}"]).values()


@pytest.mark.parametrize(("text", "expected"), [("26.2", "42.2 km"), ("5 miles", "8.0 km"), ("1,000 mi", "1609.3 km")])
def test_it_converts(text: str, expected: str) -> None:
    assert TOOL.run(text) == ToolResponse(expected)  # 26.2 * 1.609344 = 42.16; 5 * 1.609344 = 8.05; 1609.34


def test_without_a_number_there_is_no_answer() -> None:
    assert TOOL.run("far away") == ToolFailure("no_result")
'''

_MCP = """# A tool of an MCP server. Try it: toolformer tools test {key}.yaml "..."
name: {name}
description: {description}
mcp: {reference}
prompt: {key}.txt
# keywords: [...]      # only documents with one of these words are tried
# env: [...]           # environment variables that the server's process is given
# tau_f: 1.0           # smallest gain of a kept call, in nats
# examples:            # by which the tool is chosen for a query: a question, and the call's input that answers it
#   - question: ...
#     input: {form}
# mock_response: ...   # an example of its answer, by which it can be ranked without being called
"""

_MCP_PROMPT = """Add calls to a tool where its response helps to write the text. {description} A call is written \
[{name}({form})], right before the words that it gives. Here are some examples:

Input: {draft}
Output: (the same sentence with [{name}({form})] right in front of the response)

Input: {{text}}
Output:
"""


def new_python_tool(name: str) -> dict[str, str]:
    """Return the files of a new Python tool: file name -> text.

    Args:
        name: the function's name, e.g. `miles`; in calls it is written in CamelCase.

    Raises:
        UsageError: it cannot be the name of a function, or is that of a Python module or of one of the paper's tools.
    """
    if not _FUNCTION.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} cannot name a function; use lower-case letters, digits and _, e.g. miles")
    if name in sys.stdlib_module_names:  # beside the test, the file would be imported in its place
        raise UsageError(f"{name!r} is a module of Python's own, and {name}.py would hide it; choose another name")
    if key_of(camel_case(name)) in TOOL_NAMES:
        raise UsageError(f"{name!r} is one of the paper's tools; choose another name")
    words = {"key": name, "name": camel_case(name)}
    return {
        f"{name}.py": _PYTHON.format(**words),
        f"{name}.txt": _PROMPT.format(**words),
        f"test_{name}.py": _TEST.format(**words),
    }


def new_mcp_tool(key: str, reference: str, description: str, form: str) -> dict[str, str]:
    """Return a tool file and the draft of a prompt for a tool of an MCP server: file name -> text.

    Args:
        key: the files' name.
        reference: the MCP reference, without a chosen name.
        description: as the server gives it.
        form: how an input is written, e.g. `source_timezone=..., time=...`.
    """
    import json

    description = " ".join(description.split())
    description += "" if description.endswith((".", "!", "?")) else "."
    words = {
        "key": key_of(camel_case(key)),
        "name": camel_case(key),
        "form": form,
        "description": description,
        "draft": DRAFT,
    }
    quoted = {"reference": json.dumps(reference), "description": json.dumps(description, ensure_ascii=False)}
    return {
        f"{words['key']}.yaml": _MCP.format(**{**words, **quoted}),  # JSON strings are YAML strings
        f"{words['key']}.txt": _MCP_PROMPT.format(**words),
    }
