"""Items as JSON lines: the small world's items, and any benchmark of a user.

A line holds the fields of an item: `prompt` and `answers` (a list, or one text), and optionally `item_id`, `date`
(ISO), `tool` (a tool's key, or those of a chain of calls with commas in between) and `group`:

    {"prompt": "Adding the 12 nuts to the 30 already here gives us", "answers": ["42"], "tool": "calculator"}

`line_of` writes what `jsonl_item` reads. A line of queries, for grounding, names any tools, or none, and need not say
what the answer is:

    {"query": "How many kilometres are 26.2 miles?", "tools": ["units"], "answers": ["42.2 km"]}
"""

from __future__ import annotations

import json

from toolformer_core.config import TOOL_NAMES
from toolformer_core.evaluate.items import BadRowError, BenchmarkRow, Item, item_of
from toolformer_core.evaluate.readers.fields import optional, texts_in
from toolformer_core.records import day_of, digest_of


def jsonl_item(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read an item from its fields.

    Raises:
        BadRowError: no_prompt, no_answer, no_date, unknown_tool.
    """
    prompt = optional(row, "prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadRowError("no_prompt", f"prompt must be a text that is not blank; the row has {', '.join(row)}"[:200])
    tool, group = optional(row, "tool"), optional(row, "group")
    if tool is not None and not (isinstance(tool, str) and all(key in TOOL_NAMES for key in tool.split(","))):
        raise BadRowError("unknown_tool", f"{str(tool)[:40]!r} is none of {', '.join(TOOL_NAMES)}")
    return item_of(
        task,
        prompt,
        texts_in(optional(row, "answers")),
        item_id=optional(row, "item_id"),
        date=_iso(optional(row, "date")),
        tool=tool,
        group=group if isinstance(group, str) else "",
    )


def query_item(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read a query for grounding; `tools` are the keys of the tools that are right, a list or one text.

    Raises:
        BadRowError: no_query, no_date, unknown_tool.
    """
    query = optional(row, "query", "prompt")
    if not isinstance(query, str) or not query.strip():
        raise BadRowError("no_query", f"query must be a text that is not blank; the row has {', '.join(row)}"[:200])
    given = optional(row, "tools", "tool")
    tools = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(tools, list) or not all(isinstance(tool, str) and tool.strip() for tool in tools):
        raise BadRowError("unknown_tool", f"tools must be a list of keys, got {str(given)[:40]!r}")
    item_id, date, group = optional(row, "item_id"), _iso(optional(row, "date")), optional(row, "group")
    answers = tuple(texts_in(optional(row, "answers", "answer")))
    return Item(
        item_id=str(item_id) if item_id is not None else digest_of("item", task, query, date or "", *answers),
        task=task,
        prompt=query.strip(),
        answers=answers,
        date=date,
        tool=None if given is None else ",".join(tool.strip() for tool in tools),
        group=group if isinstance(group, str) else "",
    )


def line_of(item: Item) -> str:
    """Return an item as a line of JSON without a line feed, and without its source."""
    fields = {
        "item_id": item.item_id,
        "prompt": item.prompt,
        "answers": list(item.answers),
        "date": item.date,
        "tool": item.tool,
        "group": item.group,
    }
    return json.dumps(fields, ensure_ascii=False)


def _iso(value: object) -> str | None:
    if value is None:
        return None
    try:
        return day_of(value if isinstance(value, str) else repr(value)).isoformat()
    except ValueError as exc:
        raise BadRowError("no_date", str(exc)) from exc
