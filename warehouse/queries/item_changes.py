"""Two evaluated models, item by item: which items are right under both, turned right, turned wrong, or stay wrong.

Compared are the items of the benchmarks (task and source) that both sides have, of each the newest completed run's. An
item's tool is the one that the second side called, else the one that the first called, else "".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import duckdb

from warehouse.queries.rows import files_sql, open_snapshot, rows_in, rows_of
from warehouse.snapshot.views import queries_beside

# Of an item that both sides answered; `unpaired`: only one of them did, as under another --limit.
Change = Literal["right_both", "turned_right", "turned_wrong", "wrong_both", "unpaired"]
CHANGES: tuple[Change, ...] = get_args(Change)

_SQL = queries_beside(__file__)


class ItemPlace(NamedTuple):
    task: str
    source: str
    item_id: str


@dataclass(frozen=True, slots=True)
class EvaluatedSide:
    """An arm of a model at one k, with its newest evaluation of every benchmark."""

    arm: str
    k: int
    model: str  # as it was named when it was last evaluated
    base: str  # the model that it was finetuned from, or itself
    digest: str  # of the model
    evaluations: Mapping[tuple[str, str], str]  # task and source -> the evaluation


@dataclass(frozen=True, slots=True)
class ChangeCount:
    task: str
    tool: str  # "": neither side called one
    change: Change
    items: int


@dataclass(frozen=True, slots=True)
class SideResult:
    continuation: str  # with calls
    clean: str  # without calls, which is what was scored
    correct: bool
    tool: str | None  # the key of the tool that was called
    failure: str | None  # why its response is empty
    problem: str  # why the item was not answered


@dataclass(frozen=True, slots=True)
class EvaluatedItem:
    place: ItemPlace
    tool: str
    change: Change
    prompt: str
    answers: tuple[str, ...]
    first: SideResult | None  # None: this side did not answer it
    second: SideResult | None


def evaluated_sides(path: str | Path) -> list[EvaluatedSide]:
    """Return every arm that completed runs have evaluated, the one that was evaluated last first."""
    found: dict[tuple[str, int, str], EvaluatedSide] = {}
    for row in rows_of(path, _SQL["sides"]):  # the newest last
        key = row["arm"], row["k"], row["digest"]
        before = found.pop(key, None)
        evaluations = {**(before.evaluations if before else {}), (row["task"], row["source"]): row["evaluation"]}
        found[key] = EvaluatedSide(row["arm"], row["k"], row["model"], row["base"], row["digest"], evaluations)
    return list(reversed(found.values()))


def count_changes(path: str | Path, first: EvaluatedSide, second: EvaluatedSide) -> list[ChangeCount]:
    """Return how many items of each task and tool have which change, by task, tool and change."""
    evaluations = _evaluations(first, second)
    with open_snapshot(path) as connection:
        sql = _SQL["counts"].format(pairs=_SQL["pairs"].format(_predictions(connection, evaluations)))
        return [ChangeCount(**row) for row in rows_in(connection, sql, evaluations)]


def changed_items(
    path: str | Path,
    first: EvaluatedSide,
    second: EvaluatedSide,
    n: int,
    *,
    changes: Iterable[Change] = CHANGES,
    task: str = "",
    tool: str | None = None,
    after: ItemPlace | None = None,
) -> tuple[tuple[EvaluatedItem, ...], ItemPlace | None]:
    """Return a page of items by task, source and id, and the place after which the next page begins (None: no more).

    Items are of the task ("": of all) and of the tool (None: of all; "": without a call).
    """
    evaluations = _evaluations(first, second)
    place = dict(zip(("after_task", "after_source", "item"), after or (None,) * 3, strict=True))
    wanted = {"task": task, "tool": tool, "changes": list(changes), **place, "limit": n + 1}
    with open_snapshot(path) as connection:
        predictions = _predictions(connection, evaluations)
        sql = _SQL["page"].format(pairs=_SQL["pairs"].format(predictions))
        listed = rows_in(connection, sql, {**evaluations, **wanted})
        page = listed[:n]
        columns = {"picked_tasks": "task", "picked_sources": "source", "items": "item_id"}
        picked = {name: [row[column] for row in page] for name, column in columns.items()}
        rows = rows_in(connection, _SQL["texts"].format(predictions), {**evaluations, **picked}) if page else []
    texts = {_place(row): row for row in rows}
    items = tuple(_item(row, texts[_place(row)]) for row in page)
    return items, items[-1].place if len(listed) > n else None


def _evaluations(first: EvaluatedSide, second: EvaluatedSide) -> dict[str, Any]:
    """Return the evaluations of the benchmarks that both sides have."""
    shared = sorted(first.evaluations.keys() & second.evaluations.keys())
    return {
        "evaluations": [side.evaluations[one] for side in (first, second) for one in shared],
        "tasks": [task for task, _ in shared] * 2,
        "sources": [source for _, source in shared] * 2,
        "sides": [1] * len(shared) + [2] * len(shared),
    }


def _predictions(connection: duckdb.DuckDBPyConnection, evaluations: Mapping[str, Any]) -> str:
    wanted = {"evaluations": sorted(set(evaluations["evaluations"]))}
    return files_sql(connection, "predictions", _SQL["files"], wanted) or "(FROM predictions WHERE false)"


def _place(row: Mapping[str, Any]) -> ItemPlace:
    return ItemPlace(row["task"], row["source"], row["item_id"])


def _item(row: Mapping[str, Any], texts: Mapping[str, Any]) -> EvaluatedItem:
    first, second = (texts[side] and SideResult(**texts[side]) for side in ("first", "second"))
    answers = tuple(texts["answers"] or ())
    return EvaluatedItem(_place(row), row["tool"], row["change"], texts["prompt"], answers, first, second)
