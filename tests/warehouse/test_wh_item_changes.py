"""Two evaluated arms item by item: what turned right or wrong, counted by hand, and pages of the items."""

from pathlib import Path
from typing import Any

from wh_fixtures import make_run, put, snapshot_of

from warehouse.queries.item_changes import (
    ChangeCount,
    EvaluatedSide,
    ItemPlace,
    changed_items,
    count_changes,
    evaluated_sides,
)
from warehouse.store import Store

TIMES = [f"2024-05-0{day}T08:00:00+00:00" for day in range(1, 7)]
# item -> right without tools, right with tools, the tool that was called
ITEMS: dict[str, tuple[bool, bool, str | None]] = {
    "i1": (False, True, "calculator"),
    "i2": (True, False, "calculator"),
    "i3": (True, True, None),
    "i4": (False, False, "calculator"),
    "i5": (False, True, "calendar"),
}


def evaluated(
    store: Store, evaluation: str, day: int, rows: list[dict[str, Any]], *, task: str = "svamp", arm: str, **more: Any
) -> None:
    about = {"evaluation": evaluation, "task": task, "arm": arm, "k": 10 if arm == "toolformer" else 0}
    config = {**about, "model": "m", "base": "b", "model_digest": "d1", "base_digest": "d0", "source": "s.json", **more}
    shown = [{"called": row.get("tool") is not None, "tool": None, **about, **row} for row in rows]
    commit = put(store, "evaluate", "", evaluation, shown, parts={"evaluation": evaluation}, config=config)
    store.write_run(make_run(f"r{day}", [commit.key], TIMES[day], flow="evaluate"))


def answer(item: str, *, right: bool, tool: str | None = None) -> dict[str, Any]:
    return {"item_id": item, "correct": right, "tool": tool, "prompt": f"{item}?", "continuation": f" {tool or 'none'}"}


def two_arms(tmp_path: Path) -> tuple[Path, EvaluatedSide, EvaluatedSide]:
    store = Store(tmp_path)
    without = [answer(item, right=first) for item, (first, _, _) in ITEMS.items()]
    evaluated(store, "e1", 0, [*without, answer("extra", right=True)], arm="toolformer-disabled")
    having = [answer(item, right=second, tool=tool) for item, (_, second, tool) in ITEMS.items()]
    evaluated(store, "e2", 1, having, arm="toolformer")
    evaluated(store, "e3", 2, [answer("x", right=True)], arm="toolformer", task="other")  # the first arm has none
    path = snapshot_of(store)
    sides = {side.arm: side for side in evaluated_sides(path)}
    return path, sides["toolformer-disabled"], sides["toolformer"]


def test_changes_by_hand(tmp_path: Path) -> None:
    path, without, having = two_arms(tmp_path)
    assert dict(having.evaluations) == {("svamp", "s.json"): "e2", ("other", "s.json"): "e3"}
    counts = {(one.tool, one.change): one.items for one in count_changes(path, without, having)}
    assert counts == {
        ("calculator", "turned_right"): 1,
        ("calculator", "turned_wrong"): 1,
        ("calculator", "wrong_both"): 1,
        ("calendar", "turned_right"): 1,
        ("", "right_both"): 1,
        ("", "unpaired"): 1,
    }
    # The other way round what turned right turns wrong; the tool stays the one that was called.
    turned = {(one.tool, one.change): one.items for one in count_changes(path, having, without)}
    assert turned[("calculator", "turned_wrong")] == turned[("calendar", "turned_wrong")] == 1


def test_pages_of_items_and_filters(tmp_path: Path) -> None:
    path, without, having = two_arms(tmp_path)
    (first, second), place = changed_items(path, without, having, 2)
    assert (first.place.item_id, second.place.item_id) == ("extra", "i1")
    assert first.second is None
    assert (second.prompt, second.first.continuation, second.second.continuation) == ("i1?", " none", " calculator")
    assert place == ItemPlace("svamp", "s.json", "i1")
    seen = ["extra", "i1"]
    while place is not None:
        items, place = changed_items(path, without, having, 2, after=place)
        seen += [item.place.item_id for item in items]
    assert seen == ["extra", *ITEMS]  # every item on one page

    def ids(**asked: Any) -> list[str]:
        return [item.place.item_id for item in changed_items(path, without, having, 9, **asked)[0]]

    assert ids(changes=["turned_right"]) == ["i1", "i5"]
    assert ids(tool="calculator") == ["i1", "i2", "i4"]
    assert ids(tool="", changes=["right_both"]) == ["i3"]
    assert ids(task="other") == []


def test_the_newest_evaluation_of_a_benchmark_counts(store: Store) -> None:
    evaluated(store, "e1", 0, [answer("a", right=False)], arm="base")
    evaluated(store, "e2", 1, [answer("a", right=True)], arm="base")
    evaluated(store, "e3", 2, [answer("a", right=True)], arm="base", source="other.json")  # other items
    path = snapshot_of(store)
    [side] = evaluated_sides(path)
    assert side.evaluations == {("svamp", "s.json"): "e2", ("svamp", "other.json"): "e3"}
    assert count_changes(path, side, side) == [ChangeCount("svamp", "", "right_both", 2)]


def test_sides_without_a_common_benchmark(store: Store) -> None:
    evaluated(store, "e1", 0, [answer("a", right=False)], arm="base")
    evaluated(store, "e2", 1, [answer("a", right=True)], arm="toolformer", task="other")
    path = snapshot_of(store)
    one, other = evaluated_sides(path)
    assert count_changes(path, one, other) == []
    assert changed_items(path, one, other, 9) == ((), None)
