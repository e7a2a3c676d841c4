"""Models: two evaluated arms side by side, and the items that tools turned right or wrong."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.training.registry import model_label
from tasks.viewer_links import arm_key
from toolformer_core.syntax import find_calls
from viewer.data import ViewedData
from viewer.pages.document import Piece, pieces_between
from viewer.query import NotThereError, Query
from warehouse.queries.item_changes import CHANGES, Change, ChangeCount, EvaluatedSide, ItemPlace, changed_items


def pieces_with_calls(text: str, names: Mapping[str, str]) -> list[Piece]:
    """Return the pieces of a text that a model wrote; without a response, a call was never made and is text."""
    keys = {name: key for key, name in names.items()}
    made = (found for found in find_calls(text) if found.response is not None)
    return pieces_between(text, ((one.start, one.end, keys.get(one.call.tool, one.call.tool)) for one in made))


_ROWS = 10
_MAX_CHARS = 20_000  # of a prompt or a continuation on the page
_NO_TOOL = "none"  # of a URL: no tool was called
WORDS: dict[Change, str] = {
    "right_both": "right both times",
    "turned_right": "turned right",
    "turned_wrong": "turned wrong",
    "wrong_both": "wrong both times",
    "unpaired": "answered by one alone",
}


def page(viewed: ViewedData, query: Query) -> Mapping[str, Any]:
    """Return what the page shows: `a` and `b` name arms (arm:k:digest), `task`, `tool` and `change` choose items.

    Of what is not named, `b` is the newest finetuned model with tools and `a` its base.
    """
    sides = {_key(side): side for side in viewed.evaluated()} if viewed.snapshot.is_file() else {}
    names = viewed.names() if sides else {}
    first, second = query.text("a"), query.text("b")
    if len(sides) > 1:
        second = second or _key(max(sides.values(), key=lambda side: side.arm == "toolformer"))
        first = first or _key(baseline(sides.values(), _side(sides, second)))
        query = Query([*query.values.items(), ("a", first), ("b", second)])  # its links stay with these two
    tasks_of = {key: ", ".join(sorted({task for task, _ in side.evaluations})) for key, side in sides.items()}
    labels = {key: f"{_label(side)} ({tasks_of[key]})" for key, side in sides.items()}
    shown = {"sides": labels, "a": first, "b": second, "words": WORDS, "counts": None}
    if not (first and second):
        return shown
    pair = _side(sides, first), _side(sides, second)
    counts = viewed.changes(*pair)
    tasks, tools = sorted({one.task for one in counts}), sorted({one.tool for one in counts})
    task, change = query.choice("task", tasks), query.choice("change", CHANGES)
    tool = query.choice("tool", [*filter(None, tools), _NO_TOOL])
    of_tool, after = {"": None, _NO_TOOL: ""}.get(tool, tool), query.place("after", ItemPlace)
    changes = [one for one in CHANGES if change in ("", one)]
    items, last = changed_items(viewed.snapshot, *pair, _ROWS, changes=changes, task=task, tool=of_tool, after=after)
    chosen = [one for one in counts if task in ("", one.task) and change in ("", one.change)]
    chosen = [one for one in chosen if tool in ("", one.tool or _NO_TOOL)]
    return {
        **shown,
        "query": query,
        "tables": {"counts": counts, "items": items},
        "counts": _table(query, counts),
        "tasks": tasks,
        "tools": [one or _NO_TOOL for one in tools],
        "labels": tuple(map(_label, pair)),
        "speaks_of": " and ".join(_origin(viewed, side) for side in pair),
        "total": sum(one.items for one in chosen),
        "items": [
            {
                "item": item,
                "prompt": item.prompt[:_MAX_CHARS],
                "sides": [
                    side and {"result": side, "pieces": pieces_with_calls(side.continuation[:_MAX_CHARS], names)}
                    for side in (item.first, item.second)
                ],
            }
            for item in items
        ],
        "further": query.further("/models", "after", last, "items"),
    }


def baseline(sides: Iterable[EvaluatedSide], second: EvaluatedSide) -> EvaluatedSide:
    """Return the other arm that says most about an arm: on its benchmarks, its base, or else itself without tools."""
    return max(
        (side for side in sides if side is not second),
        key=lambda side: (
            bool(side.evaluations.keys() & second.evaluations.keys()),
            side.arm == "base" and side.model == second.base,
            side.digest == second.digest,
        ),
    )


def _key(side: EvaluatedSide) -> str:
    return arm_key(side.arm, side.k, side.digest)


def _label(side: EvaluatedSide) -> str:
    return f"{model_label(side.model)}, {side.arm}, k = {side.k}"


def _origin(viewed: ViewedData, side: EvaluatedSide) -> str:
    versions = {row["checkpoint"]: row["label"] for row in viewed.rows("trained_on")}
    version = versions.get(str(Path(side.model).expanduser().absolute()))
    return _label(side) + (f" (finetuned on {version})" if version else "")


def _side(sides: Mapping[str, EvaluatedSide], key: str) -> EvaluatedSide:
    if key not in sides:
        raise NotThereError(f"no completed evaluation of {key[:100]!r} is here: toolformer evaluate makes one")
    return sides[key]


def _table(query: Query, counts: Sequence[ChangeCount]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for one in counts:
        rows.setdefault((one.task, one.tool), {})[one.change] = one.items

    def href(task: str, tool: str, change: Change) -> str:
        return query.to("/models", task=task, tool=tool or _NO_TOOL, change=change, after=None) + "#items"

    return [
        {"task": task, "tool": tool, "cells": [(own.get(one, 0), href(task, tool, one)) for one in CHANGES]}
        for (task, tool), own in rows.items()
    ]
