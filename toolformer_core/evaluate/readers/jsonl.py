"""Items as JSON lines: the small world's items, and any benchmark of a user.

A line holds the fields of an item: `prompt` and `answers` (a list, or one text), and optionally `item_id`, `date`
(ISO), `tool` (a tool's key) and `group`:

    {"prompt": "Adding the 12 nuts to the 30 already here gives us", "answers": ["42"], "tool": "calculator"}

`line_of` writes what `jsonl_item` reads.
"""

from __future__ import annotations

import json

from toolformer_core.config import TOOL_NAMES
from toolformer_core.evaluate.items import BadRowError, BenchmarkRow, Item, item_of
from toolformer_core.evaluate.readers.fields import optional, texts_in
from toolformer_core.records import day_of

__all__ = ["jsonl_item", "line_of"]


def jsonl_item(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read an item from its fields.

    Raises:
        BadRowError: no_prompt, no_answer, no_date, unknown_tool.
    """
    prompt = optional(row, "prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadRowError("no_prompt", f"prompt must be a text that is not blank; the row has {', '.join(row)}"[:200])
    tool, group = optional(row, "tool"), optional(row, "group")
    if tool is not None and not (isinstance(tool, str) and tool in TOOL_NAMES):  # a list is not hashable
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
