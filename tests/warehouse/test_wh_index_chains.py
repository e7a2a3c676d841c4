"""Chains in the snapshot's index: yields and lists are those of the method, with single calls beside the chains."""

import tempfile
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from wh_fixtures import put, scored, snapshot_of

from tasks.shards import arrow
from tests.support.plain_filter import plain_survivors
from toolformer_core.annotate.call_filter import CallFilter
from toolformer_core.records import ScoredCall
from warehouse.commits import Commit
from warehouse.indexed_calls import IndexedCalls
from warehouse.queries import Yield, rows_of, yield_by_threshold
from warehouse.queries.calls import Sample
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

_link = st.fixed_dictionaries(
    {"tool": st.sampled_from(TOOLS), "input": st.sampled_from(["a", "b"]), "response": st.just("1")}
)
_call = {
    "doc_id": st.sampled_from(["d1", "d2"]),
    "tool": st.sampled_from(TOOLS),
    "position": st.integers(0, 2),
    "gain": st.sampled_from([-1.0, 0.5, 1.0, 1.5, float("nan")]),
    "input": st.sampled_from(["a", "b"]),
}
SINGLE = st.lists(st.fixed_dictionaries(_call), max_size=8)
_chain = {**_call, "preceding_calls": st.lists(_link, min_size=1, max_size=2)}
CHAINS = st.lists(st.fixed_dictionaries(_chain), max_size=8)


def written(store: Store, single: Iterable[Row], chains: Iterable[Row], window: int | None = 2) -> list[Commit]:
    """One shard of documents "d1" and "d2": draws whose rank is the position, of log p = -rank, and what was scored.

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


def place(call: ScoredCall | Sample) -> tuple[str, int, tuple[str, ...], str, tuple[tuple[str, str, str], ...]]:
    links = tuple((one.tool, one.input, one.response) for one in call.preceding_calls)
    return call.doc_id, call.position, (*(tool for tool, *_ in links), call.tool), call.input, links


@settings(max_examples=6, deadline=None)
@given(SINGLE, CHAINS, FILTERS, FILTERS, st.sampled_from([None, 1, 2, 3]))
def test_what_the_index_says_is_what_the_method_keeps(
    single: list[Row], chains: list[Row], before: CallFilter, after: CallFilter, window: int | None
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
