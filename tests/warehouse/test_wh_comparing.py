"""Two versions of C* call by call, and two evaluated arms item by item: counted by hand, and every one on one page."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wh_fixtures import make_run, put, put_dataset, snapshot_of

from warehouse.errors import SnapshotError
from warehouse.queries.comparing import CallPlace, ComparedTool, compare_versions
from warehouse.queries.item_changes import (
    ChangeCount,
    EvaluatedSide,
    ItemPlace,
    changed_items,
    count_changes,
    evaluated_sides,
)
from warehouse.store import Store

Places = list[CallPlace]


def versions(folder: str | Path, *calls: Places) -> Path:
    """Versions v0, v1, ... with these calls; each gains its position."""
    store = Store(folder)
    commits = []
    for number, own in enumerate(calls):
        rows: dict[str, Any] = {}
        for call in own:
            row = rows.setdefault(call.doc_id, {"doc_id": call.doc_id, "text": "", "calls": []})
            span = {"start": 0, "end": 0, "gain": float(call.position)}
            row["calls"].append({**{k: v for k, v in call._asdict().items() if k != "doc_id"}, **span})
        commits.append(put(store, "assemble", "", f"s{number}", list(rows.values())))
        put_dataset(store, f"v{number}", commits[-1:], "r")
    store.write_run(make_run("r", [commit.key for commit in commits]))
    return snapshot_of(store)


def names(folder: str | Path) -> list[tuple[str, str]]:
    return [(dataset.name, dataset.version) for dataset in Store(folder).datasets()]


A, B, C = (CallPlace("d", n, "qa", "x", "y") for n in (1, 2, 3))
D = CallPlace("e", 1, "mt", "x", "y")


def test_counts_and_lists_by_hand(tmp_path: Path) -> None:
    snapshot = versions(tmp_path, [A, B], [B, C, D], [])
    first, second, empty = names(tmp_path)
    found = compare_versions(snapshot, first, second, 10)
    assert found.tools == (ComparedTool("mt", 0, 0, 1, 0, 1), ComparedTool("qa", 1, 1, 1, 1, 1))
    assert [(call.place, call.gain) for call in found.goes] == [(A, 1.0)]
    assert [call.place for call in found.comes] == [C, D]
    assert not found.more_goes
    assert not found.more_comes
    assert [call.place for call in compare_versions(snapshot, empty, second, 10).comes] == [B, C, D]
    assert compare_versions(snapshot, empty, empty, 10).tools == ()
    with pytest.raises(SnapshotError, match="there is no version v0@0"):
        compare_versions(snapshot, ("v0", "0"), second, 10)


_places = st.builds(
    CallPlace,
    st.sampled_from(["d", "e"]),
    st.integers(0, 2),
    st.sampled_from(["qa", "mt"]),
    st.sampled_from(["", "a"]),
    st.sampled_from(["b", "\0"]),
)


@settings(max_examples=6)
@given(st.lists(_places, unique=True), st.lists(_places, unique=True), st.integers(1, 3))
def test_pages_are_the_difference(first: Places, second: Places, n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        snapshot = versions(folder, first, second)
        one, other = names(folder)
        listed: tuple[Places, Places] = ([], [])
        goes_after = comes_after = None
        while True:
            found = compare_versions(snapshot, one, other, n, goes_after=goes_after, comes_after=comes_after)
            listed[0].extend(call.place for call in (found.goes if goes_after is None or listed[0] else ()))
            listed[1].extend(call.place for call in (found.comes if comes_after is None or listed[1] else ()))
            if not (found.more_goes or found.more_comes):
                break
            goes_after = found.goes[-1].place if found.goes else goes_after
            comes_after = found.comes[-1].place if found.comes else comes_after
        assert sorted(listed[0]) == sorted(set(first) - set(second))
        assert sorted(listed[1]) == sorted(set(second) - set(first))
        shared = Counter(call.tool for call in set(first) & set(second))
        assert {one.tool: one.both for one in found.tools if one.both} == dict(shared)


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
