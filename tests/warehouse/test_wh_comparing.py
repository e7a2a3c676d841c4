"""Two versions of C*: each call is in both or in one, counted and listed once, however the pages are cut."""

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
