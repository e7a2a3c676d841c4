"""Lists of calls and documents in pages: every one on exactly one page, whatever a page holds."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wh_fixtures import put, scored, snapshot_of

from toolformer_core.annotate.call_filter import CallFilter
from warehouse.indexed_calls import CallPage, IndexedCalls, Outcome
from warehouse.queries import Sample
from warehouse.queries.documents import DocumentFilter, find_documents
from warehouse.store import Store
from warehouse.what_if import what_if

TOOLS = ("calculator", "qa")
Rows = dict[str, list[dict[str, Any]]]


def calls() -> st.SearchStrategy[Rows]:
    """Few documents, positions and gains, so that calls meet at a position and gain alike."""
    one = st.fixed_dictionaries(
        {
            "doc_id": st.sampled_from(["d1", "d2", "d3"]),
            "position": st.integers(0, 3),
            "gain": st.sampled_from([0.2, 0.5, 1.0, 1.5, float("nan")]),
            "input": st.sampled_from(["a", "b"]),
            "log_p": st.sampled_from([-1.0, -3.0]),  # of the position
        }
    )
    return st.fixed_dictionaries({tool: st.lists(one, max_size=8) for tool in TOOLS})


def published(store: Store, rows: Rows) -> Path:
    """One shard: its documents, and draws and scored calls whose windows are two characters long."""
    documents = [{"doc_id": one, "text": "0123456789"} for one in ("d1", "d2", "d3")]
    first = put(store, "ingest", "", "s0", documents)
    for tool, own in rows.items():
        full = [{**scored(tool=tool, **row), "window_end": row["position"] + 2} for row in own]
        put(store, "sample", tool, "s0", [{**row, "rank": row["position"], "outcome": "ok"} for row in full])
        put(store, "score", tool, "s0", full, inputs=(first.files[0].digest,))
    return snapshot_of(store)


def pages_of(page_after: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the pages of a list; `page_after` returns the page after the last call of another, the first after None."""
    key = None
    while True:
        page = page_after(key)
        yield page
        if (key := page.last) is None:
            return


def moved(path: Path, before: CallFilter, after: CallFilter, n: int) -> list[list[Sample]]:
    calls, out = IndexedCalls(path), []
    for name in ("comes", "goes"):

        def page_after(key: Any, name: str = name) -> CallPage:
            page: CallPage = getattr(calls.moved(before, after, n, **{f"{name}_after": key}), name)
            return page

        pages = list(pages_of(page_after))
        assert all(len(page.calls) <= n for page in pages)
        out.append([call for page in pages for call in page.calls])
        assert {page.total for page in pages} == {len(out[-1])}
    return out


@settings(max_examples=3, deadline=None)
@given(calls(), st.sampled_from([0.3, 0.5, 1.0]), st.sampled_from([0.3, 1.0, 1.2]), st.integers(1, 4))
def test_pages_of_moved_calls_are_what_if_s_lists(rows: Rows, tau: float, qa: float, n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = published(Store(folder), rows)
        before, after = CallFilter({"calculator": 0.5, "qa": 0.5}), CallFilter({"calculator": tau, "qa": qa})
        answer = what_if(path, before, after, 100)
        assert moved(path, before, after, n) == [list(answer.comes), list(answer.goes)]


def test_calls_that_gain_alike_are_told_apart(tmp_path: Path) -> None:
    places = [("d1", 0), ("d1", 3), ("d2", 0), ("d3", 6)]
    alike = [{"doc_id": one, "position": at, "gain": 1.0, "input": "a"} for one, at in places]
    path = published(Store(tmp_path), {"calculator": alike, "qa": []})
    loose, strict = (CallFilter({"calculator": tau, "qa": 0.5}) for tau in (0.5, 2.0))
    for n in (1, 2, 3, 4):
        comes, goes = moved(path, loose, strict, n)
        assert comes == []
        assert sorted((call.doc_id, call.position) for call in goes) == places


@settings(max_examples=3, deadline=None)
@given(calls(), st.sampled_from([0.3, 1.0]), st.integers(1, 4))
def test_every_call_has_one_outcome_and_is_on_one_page(rows: Rows, tau: float, n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = published(Store(folder), rows)
        now, index = CallFilter({"calculator": tau, "qa": 0.5}), IndexedCalls(path)

        def listed(outcome: Outcome) -> list[Sample]:
            pages = pages_of(lambda key: index.by_gain(now, n, outcome=outcome, after=key))
            return [call for page in pages for call in page.calls]

        everything = listed("")
        assert len(everything) == len(set(everything)) == index.by_gain(now, 100).total
        assert [call.gain for call in everything] == sorted((call.gain for call in everything), reverse=True)
        parts = [listed(outcome) for outcome in ("kept", "below_threshold", "outdone")]
        assert sorted(repr(call) for part in parts for call in part) == sorted(map(repr, everything))


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    store = Store(tmp_path)
    for shard, ids in (("s0", "bad"), ("s1", "c"), ("s2", "gfe")):
        rows = [{"doc_id": one, "text": f"Text {one} of all", "url": f"http://{one}.example:80/x"} for one in ids]
        first = put(store, "ingest", "", shard, rows)
        put(store, "prefilter", "qa", shard, [{"doc_id": ids[0], "tool": "qa"}], inputs=(first.files[0].digest,))
    return snapshot_of(store)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_every_document_is_on_one_page(documents: Path, n: int) -> None:
    pages = list(pages_of(lambda key: find_documents(documents, DocumentFilter(text="of"), n, key, 60.0)))
    assert all(page.full for page in pages[:-1])
    assert [one.doc_id for page in pages for one in page.documents] == ["a", "b", "d", "c", "e", "f", "g"]


def test_a_search_ends_when_its_time_is_over_and_goes_on_from_there(documents: Path) -> None:
    wanted = DocumentFilter(text='"Text g"')
    first, *others = pages_of(lambda key: find_documents(documents, wanted, 5, key, seconds=0))
    assert not first.full
    # one file was searched, the second, and the third
    assert [[one.doc_id for one in page.documents] for page in (first, *others)] == [[], [], ["g"]]
