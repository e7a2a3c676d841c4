"""The snapshot's index: yields, lists and pages of calls, chains among them, are the method's; pages of documents."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wh_fixtures import put, scored, snapshot_of

from tasks.shards import arrow
from tests.support.plain_filter import plain_survivors
from toolformer_core.annotate.call_filter import CallFilter
from toolformer_core.records import ScoredCall
from warehouse.commits import Commit
from warehouse.indexed_calls import CallPage, IndexedCalls, Outcome
from warehouse.queries import Yield, rows_of, yield_by_threshold
from warehouse.queries.calls import CallInContext
from warehouse.queries.documents import DocumentFilter, find_documents
from warehouse.store import Store
from warehouse.what_if import what_if

TOOLS = ("calculator", "qa")
TAUS = st.fixed_dictionaries({tool: st.sampled_from([-2.0, 0.5, 1.0, 1.2]) for tool in TOOLS})
FILTERS = st.builds(
    CallFilter,
    TAUS,
    st.sampled_from([{}, {"qa": 1}, {"calculator": 1, "qa": 2}]),
    st.sampled_from([{}, {"qa": 0.9}]),  # p(" [") is 1 at position 0, and less elsewhere
    st.sampled_from([frozenset(), frozenset({"qa"}), frozenset(TOOLS)]),
)
Row = dict[str, Any]

_called = {"tool": st.sampled_from(TOOLS), "input": st.sampled_from(["a", "b"])}
_link = st.fixed_dictionaries({**_called, "response": st.just("1")})
_call = {
    "doc_id": st.sampled_from(["d1", "d2"]),
    "position": st.integers(0, 2),
    "gain": st.sampled_from([-1.0, 0.5, 1.0, 1.5, float("nan")]),
    **_called,
}
SINGLE = st.lists(st.fixed_dictionaries(_call), max_size=8)
_chain = {**_call, "preceding_calls": st.lists(_link, min_size=1, max_size=2)}
CHAINS = st.lists(st.fixed_dictionaries(_chain), max_size=8)


def written(store: Store, single: Iterable[Row], chains: Iterable[Row], window: int | None = 2) -> list[Commit]:
    """One shard of documents "d1" and "d2": samples whose rank is the position, of log p = -rank, and what was scored.

    A chain goes on from single calls that were scored; those that are not among the rows gain next to nothing.
    """
    chains = list(chains)
    starts = [
        {"doc_id": row["doc_id"], "position": row["position"], "gain": -3.0, **row["preceding_calls"][0]}
        for row in chains
    ]
    put(store, "ingest", "", "s0", [{"doc_id": d, "text": f"text of {d}"} for d in ("d1", "d2")])
    made = []
    for tool in TOOLS:
        own = [_scored(row, window) for row in (*single, *starts) if row["tool"] == tool]
        put(store, "sample", tool, "s0", [{**row, "rank": row["position"], "outcome": "ok"} for row in own])
        made.append(put(store, "score", tool, "s0", own))
    for links in (2, 3):
        for tool in TOOLS:
            own = [_scored(r, window) for r in chains if r["tool"] == tool and len(r["preceding_calls"]) == links - 1]
            full = [{**row, "loss_shorter": row["loss_plain"], "log_p": 0.0} for row in own]
            made.append(put(store, f"score_{links}", tool, "s0", full))
    return made


def _scored(row: Row, window: int | None) -> Row:
    return {**scored(**row), "log_p": -float(row["position"]), "window_end": window and row["position"] + window}


def kept(store: Store, made: Iterable[Commit], call_filter: CallFilter) -> list[ScoredCall]:
    calls = [call for commit in made for call in arrow.scored_of(store.read(commit.files[0]))]
    ranks = {(c.tool, c.doc_id, c.position): c.position for c in calls}
    return plain_survivors(calls, call_filter, ranks)


def counted(calls: Iterable[ScoredCall], tau_f: dict[str, float]) -> list[Yield]:
    """Return the yields; a chain has all of its calls."""
    links = [(tool, call.doc_id) for call in calls for tool in call.tools]
    return [
        Yield(tool, tau_f[tool], len({link for link in links if link[0] == tool}), sum(t == tool for t, _ in links))
        for tool in TOOLS
    ]


def place(call: ScoredCall | CallInContext) -> tuple[str, int, tuple[str, ...], str, tuple[tuple[str, str, str], ...]]:
    links = tuple((one.tool, one.input, one.response) for one in call.preceding_calls)
    return call.doc_id, call.position, (*(tool for tool, *_ in links), call.tool), call.input, links


@settings(max_examples=6, deadline=None)
@given(SINGLE, CHAINS, FILTERS, FILTERS, st.sampled_from([None, 1, 2, 3]), st.integers(1, 4))
def test_what_the_index_says_is_what_the_method_keeps(
    single: list[Row], chains: list[Row], before: CallFilter, after: CallFilter, window: int | None, n: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        made = written(store, single, chains, window)
        path = snapshot_of(store)
        assert rows_of(path, "FROM facts.broken") == []
        was, becomes = (kept(store, made, one) for one in (before, after))
        assert IndexedCalls(path).yields(after) == counted(becomes, dict(after.tau_f))
        found = what_if(path, before, after, n=100)
        held, holds = ({place(call)[:3] for call in side} for side in (was, becomes))
        assert {place(call) for call in found.comes} == {place(c) for c in becomes if place(c)[:3] not in held}
        assert {place(call) for call in found.goes} == {place(c) for c in was if place(c)[:3] not in holds}
        by_tau = [
            one
            for tau in (0.5, 1.0, 2.0)
            for one in counted(kept(store, made, CallFilter(dict.fromkeys(TOOLS, tau))), dict.fromkeys(TOOLS, tau))
        ]
        assert yield_by_threshold(path) == sorted(by_tau, key=lambda one: (one.tool, one.tau_f))
        assert moved(path, before, after, n) == [list(found.comes), list(found.goes)]  # on pages of n calls
        index = IndexedCalls(path)

        def listed(outcome: Outcome) -> list[CallInContext]:
            pages = pages_of(lambda key: index.by_gain(after, n, outcome=outcome, after=key))
            return [call for page in pages for call in page.calls]

        everything = listed("")
        assert len(everything) == len(set(everything)) == index.by_gain(after, 100).total
        assert [call.gain for call in everything] == sorted((call.gain for call in everything), reverse=True)
        parts = [listed(outcome) for outcome in ("kept", "below_threshold", "outdone")]
        assert sorted(repr(call) for part in parts for call in part) == sorted(map(repr, everything))


def test_calls_that_gain_alike_are_told_apart(store: Store) -> None:
    places = [("d1", 0), ("d1", 3), ("d2", 0), ("d2", 6)]
    alike = {"tool": "calculator", "gain": 1.0, "input": "a"}
    written(store, [{"doc_id": one, "position": at, **alike} for one, at in places], [])
    path = snapshot_of(store)
    loose, strict = (CallFilter({"calculator": tau, "qa": 0.5}) for tau in (0.5, 2.0))
    for n in (1, 2, 3, 4):
        comes, goes = moved(path, loose, strict, n)
        assert comes == []
        assert sorted((call.doc_id, call.position) for call in goes) == places


def pages_of(page_after: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the pages of a list; `page_after` returns the page after the last call of another, the first after None."""
    key = None
    while True:
        page = page_after(key)
        yield page
        if (key := page.last) is None:
            return


def moved(path: Path, before: CallFilter, after: CallFilter, n: int) -> list[list[CallInContext]]:
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
