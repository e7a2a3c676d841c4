"""Builds and what-ifs that leave out what people reject, or keep only what they accept."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from flows.build_dataset.plan import plan_build
from flows.build_dataset.what_if import compare_by_shard, materialise
from flows.build_dataset.what_if_query import ask
from flows.report.document_trace import trace_document
from flows.report.judging import chosen_marks, mark_filter
from tasks.specs.mark_filter import MarkFilter
from tests.support.small_builds import examples_in, small_build
from toolformer_core.errors import UsageError
from toolformer_core.records import ScoredCall
from warehouse.marks import CallIdentity, add_marks
from warehouse.queries import rows_of
from warehouse.store import Store


def held(store: Store, name: str = "cstar") -> list[CallIdentity]:
    """The calls of the newest version of C*."""
    newest = [dataset for dataset in store.datasets() if dataset.name == name][-1]
    calls = [(example.doc_id, call) for example in examples_in(store, newest) for call in example.calls]
    return sorted(CallIdentity(doc_id, c.tool, c.position, c.input, c.response) for doc_id, c in calls)


def test_a_rejected_call_is_left_out_and_nothing_else(few_documents: Path, as_built: Path) -> None:
    store, snapshot = Store(as_built), as_built / "warehouse.duckdb"
    before = held(store)
    rejected = before[0]
    add_marks(store, "a", [(rejected, "reject"), (before[1], "unsure"), (before[2], "accept")])
    query = ask(snapshot, {}, marks=mark_filter(store, "not-rejected"))
    answer = compare_by_shard(store, query)
    assert [(one.doc_id, one.tool, one.position) for one in answer.goes] == [
        (rejected.doc_id, rejected.tool, rejected.position)
    ]
    built = run_build(small_build(few_documents, as_built, ratings="not-rejected"))
    after = held(store)
    assert built.done == 1  # one of the three shards holds it; the others are as they were
    assert set(before) - set(after) == {rejected}
    assert {(c.doc_id, c.tool, c.position) for c in set(after) - set(before)} == {
        (one.doc_id, one.tool, one.position) for one in answer.comes
    }
    for change in answer.changes:
        assert change.before.calls == sum(call.tool == change.before.tool for call in before)
        assert change.after.calls == sum(call.tool == change.after.tool for call in after)
    drops = "SELECT sum(rows)::INT AS n FROM drops WHERE stage = 'assemble' AND reason = 'rejected'"
    assert rows_of(snapshot, drops) == [{"n": 1}]
    # A what-if counts the call as if it took part, and says so.
    [note] = [one for one in ask(snapshot, {}).notes if "marks" in one]
    assert note.startswith("the current C* was assembled with --ratings not-rejected, which left out 1 scored call")
    own = ("doc_id", "tool", "position", "input", "response")
    calls = trace_document(store, snapshot, rejected.doc_id).calls
    assert [c["fate"] for c in calls if CallIdentity(*(c[name] for name in own)) == rejected] == ["rejected"]
    assert plan_build(small_build(few_documents, as_built, ratings="not-rejected")).nothing_to_do
    assert plan_build(small_build(few_documents, as_built)).nothing_to_do  # without marks all is as it was


def test_what_if_makes_the_version_that_a_build_makes(few_documents: Path, as_built: Path) -> None:
    store, snapshot = Store(as_built), as_built / "warehouse.duckdb"
    before = held(store)
    add_marks(store, "a", [(before[0], "accept"), (before[-1], "accept"), (before[1], "reject")])
    query = ask(snapshot, {}, marks=mark_filter(store, "accepted"))
    materialise(store, query, "accepted")
    assert held(store, "accepted") == sorted({before[0], before[-1]})
    answer = compare_by_shard(store, query, n=1)
    assert sum(change.after.calls for change in answer.changes) == 2
    assert (len(answer.comes), len(answer.goes)) == (0, 1)
    assert plan_build(small_build(few_documents, as_built, ratings="accepted")).nothing_to_do


def test_nobody_has_rated_a_call(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert chosen_marks(store, "all") is None
    with pytest.raises(UsageError, match="nobody has accepted a call"):
        chosen_marks(store, "accepted")
    assert mark_filter(store, "not-rejected").calls == frozenset()


def test_a_call_is_known_by_all_that_it_is() -> None:
    call = ScoredCall("d", "qa", 3, "Wo?", "hier", -1.0, 1, 2.0, 2.0, 1.0, seen_before=False, seen_after=False)
    other = replace(call, response="dort")
    said = frozenset({CallIdentity("d", "qa", 3, "Wo?", "hier").digest})
    assert MarkFilter("not-rejected", "", said).reasons([call, other]) == ["rejected", ""]
    assert MarkFilter("accepted", "", said).reasons([call, other]) == ["", "not_accepted"]
