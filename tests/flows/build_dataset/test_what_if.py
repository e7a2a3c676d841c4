"""Other thresholds, and what people say: counted as the method counts, and assembled as a build with them would."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from flows.build_dataset.versions import card_of
from flows.build_dataset.what_if import compare_by_shard, materialise
from flows.build_dataset.what_if_query import ask
from flows.report.document_trace import trace_document
from flows.report.judging import chosen_ratings, rating_filter
from tasks.specs.rating_filter import RatingFilter
from tests.support.small_builds import Built, examples_in, small_build
from toolformer_core.errors import UsageError
from toolformer_core.prompts.load import load_prompt, prompt_from_text
from toolformer_core.records import ScoredCall
from warehouse.catalog import Catalog
from warehouse.commits import Dataset
from warehouse.queries import current_build, rows_of
from warehouse.ratings import CallIdentity, add_ratings
from warehouse.snapshot.publish import publish
from warehouse.store import Store


@pytest.fixture
def data(as_built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the small build; no model may be loaded from it."""
    for stage in ("sample", "score"):
        monkeypatch.setattr(f"tasks.stages.{stage}.model_of", lambda *_: pytest.fail("a model was loaded"))
    return as_built


def bytes_of(store: Store, dataset: Dataset) -> list[bytes | None]:
    return [store.files.get(file.path) for file in dataset.files]


def kept_calls(store: Store, dataset: Dataset) -> set[tuple[str, str, int]]:
    return {(one.doc_id, call.tool, call.position) for one in examples_in(store, dataset) for call in one.calls}


def version(store: Store, name: str, version: str) -> Dataset:
    return [d for d in store.datasets() if (d.name, d.version) == (name, version)][-1]


def test_below_the_floor_of_the_scores_nothing_is_answered(data: Path) -> None:
    snapshot = data / "warehouse.duckdb"
    with pytest.raises(UsageError, match=r"what --tau calendar=-0\.1 would add cannot be known"):
        ask(snapshot, {"calendar": -0.1})
    assert ask(snapshot, {"calendar": 0.0}).after.tau_f["calendar"] == 0.0
    scored = rows_of(snapshot, "SELECT gain, bound, loss_call, log_p_plain, log_p_call FROM scored")
    cut = [row for row in scored if row["loss_call"] is None]
    assert cut
    assert all(row["gain"] == row["bound"] < 0 and row["log_p_call"] is None for row in cut)
    whole = [row for row in scored if row["loss_call"] is not None]
    assert all(1 <= len(row["log_p_plain"]) == len(row["log_p_call"]) <= 5 and row["bound"] is None for row in whole)


@pytest.mark.parametrize(
    ("asked", "floor"), [({}, 0.0), ({"tau_f": {"calendar": -0.5}}, -0.5), ({"tau_f": {"qa": 2.0}}, 0.0)]
)
def test_scores_reach_the_floor(few_documents: Path, tmp_path: Path, asked: dict[str, object], floor: float) -> None:
    assert resolve(small_build(few_documents, tmp_path, **asked)).score.floor == floor


def test_other_thresholds_give_what_a_build_with_them_gives(few_documents: Path, data: Path) -> None:
    store = Store(data)
    made = materialise(store, ask(data / "warehouse.duckdb", {"calendar": 0.05, "calculator": 1.0}), "strict")
    built = run_build(small_build(few_documents, data, tau_f={"calendar": 0.05, "calculator": 1.0}))
    assert (made.version, made.counts) == (built.version, built.counts)
    assert made.thresholds == {"calculator": 1.0, "calendar": 0.05}
    assert "Assembled from stored scores" in card_of(store, made)
    assert bytes_of(store, made) == bytes_of(store, version(store, "cstar", built.version))
    assert built.done == 0  # the build found the parts of C* that what-if assembled
    # the new version names a run that lists what it rests on
    stages = rows_of(built.snapshot, "SELECT DISTINCT stage FROM lineage WHERE dataset = 'strict'")
    assert {row["stage"] for row in stages} == {"ingest", "prefilter", "sample", "execute", "score", "assemble"}


@pytest.mark.slow
def test_repeated_calls_are_kept_as_a_build_that_keeps_them_does(
    few_documents: Path, as_built: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the losses below the floor are computed
    low = {"calendar": -1.0, "calculator": -1.0}  # so that calls are kept at neighbouring places
    run_build(small_build(few_documents, as_built, tau_f=low))
    store, snapshot = Store(data), data / "warehouse.duckdb"
    dropping = materialise(store, ask(snapshot, low, keep_repeats=False), "once")
    keeping = materialise(store, ask(snapshot, low, keep_repeats=True), "often")
    assert keeping.counts == dropping.counts  # of each answer one call is left
    assert len(kept_calls(store, keeping)) > len(kept_calls(store, dropping))
    built = run_build(small_build(few_documents, data, tau_f=low, keep_repeats=True))
    assert (keeping.version, built.done) == (built.version, 0)
    asked = ask(snapshot, {})
    assert asked.before == asked.after
    assert asked.before.keep_repeats


def test_fewer_positions_are_a_part_of_those_sampled(data: Path) -> None:
    store, snapshot = Store(data), data / "warehouse.duckdb"
    asked = ask(snapshot, {"calendar": 0.1, "calculator": 0.1}, top_k=1)
    assert asked.notes == ()
    made = materialise(store, asked, "first")
    rows = rows_of(snapshot, 'SELECT doc_id, tool, "position" FROM sampled WHERE "rank" = 0')
    assert set() < kept_calls(store, made) <= {tuple(row.values()) for row in rows}
    # what is current is still what was built, with all positions; what was left out stands in the version's commits
    again = ask(snapshot, {}, top_k=1)
    assert (again.before.top_k, again.after.top_k) == ({}, {"calculator": 1, "calendar": 1})
    for_one = ask(snapshot, {}, top_k={"calendar": 1}, tau_s={"calculator": 0.5})
    assert (for_one.after.top_k, for_one.after.tau_s) == ({"calendar": 1}, {"calculator": 0.5})
    assert rows_of(snapshot, "FROM drops WHERE reason = 'position_left_out'") == []
    reasons = "SELECT reason FROM facts.balances SEMI JOIN (FROM lineage WHERE dataset = 'first') USING (commit_id)"
    assert {"reason": "position_left_out"} in rows_of(snapshot, reasons)


def test_what_cannot_be_known_is_said(data: Path) -> None:
    snapshot = data / "warehouse.duckdb"
    with pytest.raises(UsageError, match="k = 3: what --top-k 4 would add cannot be known"):
        ask(snapshot, {}, top_k=4)
    asked = ask(snapshot, {}, tau_s=0.01)  # the calculator was sampled with 0, the calendar with 0.05
    assert asked.after.tau_s == {"calculator": 0.01}
    assert ["calendar was sampled with tau_s = 0.05" in note for note in asked.notes] == [True]
    notes = ask(snapshot, {"calendar": 9.0}, top_k=4).notes
    assert [note.split()[0] for note in notes] == ["calculator", "calendar"]
    with pytest.raises(UsageError, match="--materialise"):
        materialise(Store(data), ask(snapshot, {}), "my data")


def test_a_version_of_other_thresholds_leaves_what_is_current_alone(few_documents: Path, data: Path) -> None:
    store, snapshot = Store(data), data / "warehouse.duckdb"
    views = ("examples", "drops", "kept_calls", "best_calls")
    before = {view: rows_of(snapshot, f"FROM {view} ORDER BY ALL") for view in views}
    asked, of = ask(snapshot, {"calendar": 9.0}), current_build(snapshot)
    assert of is not None
    made = materialise(store, asked, "strict")
    assert {view: rows_of(snapshot, f"FROM {view} ORDER BY ALL") for view in views} == before
    assert current_build(snapshot) == of
    # what is kept now is what was built; asked again, and assembled once more, it all still speaks of the build's run
    again = ask(snapshot, {"calendar": 9.0})
    assert (again.before, again.stored.run_id) == (asked.before, of.run_id)
    other = materialise(store, ask(snapshot, {"calculator": 9.0}), "other")
    assert other.thresholds == {"calculator": 9.0, "calendar": 0.2}  # the build's, and not that of `strict`
    sql = "SELECT count(*) AS n FROM dataset_examples WHERE dataset = 'strict'"
    assert rows_of(snapshot, sql) == [{"n": sum(file.rows for file in made.files)}]
    plan = plan_build(small_build(few_documents, data, tau_f={"calendar": 0.3}))
    assert {because for one in plan.shards for because in one.because} == {"tau_f.calendar: 0.2 -> 0.3"}
    # a build with those settings is what counts from then on
    built = run_build(small_build(few_documents, data, tau_f={"calendar": 9.0}))
    assert (built.done, built.version) == (0, made.version)
    assert {row["version"] for row in rows_of(snapshot, "FROM examples")} == {made.version}


def test_a_build_that_failed_once_all_was_scored_is_what_stays_current(data: Path) -> None:
    store, snapshot = Store(data), data / "warehouse.duckdb"
    for run in store.runs():
        keys = tuple(key for key in run.commits if key.stage != "assemble")
        store.write_run(replace(run, state="failed", commits=keys, dataset=""))
    for record in (data / "datasets").rglob("*.json"):
        record.unlink()
    with Catalog(data / "catalog.duckdb", store=store, rebuild=True) as catalog:
        publish(store, catalog)
    of = current_build(snapshot)
    assert of is not None
    made = materialise(store, ask(snapshot, {"calendar": 0.2}), "rescued")
    assert current_build(snapshot) == of
    assert rows_of(snapshot, "FROM examples") == []
    assert len(rows_of(snapshot, "FROM dataset_examples")) == sum(file.rows for file in made.files) > 0


def test_a_build_stores_its_prompts(built: Built) -> None:
    rows = rows_of(built[0].snapshot, "SELECT tool, text FROM prompts WHERE current ORDER BY tool")
    assert [row["tool"] for row in rows] == ["calculator", "calendar"]
    for row in rows:
        assert prompt_from_text(row["tool"], row["text"]) == load_prompt(row["tool"])


def held(store: Store, name: str = "cstar") -> list[CallIdentity]:
    """The calls of the newest version of C*."""
    newest = [dataset for dataset in store.datasets() if dataset.name == name][-1]
    calls = [(example.doc_id, call) for example in examples_in(store, newest) for call in example.calls]
    return sorted(CallIdentity(doc_id, c.tool, c.position, c.input, c.response) for doc_id, c in calls)


def test_a_rejected_call_is_left_out_and_nothing_else(few_documents: Path, as_built: Path) -> None:
    store, snapshot = Store(as_built), as_built / "warehouse.duckdb"
    before = held(store)
    rejected = before[0]
    add_ratings(store, "a", [(rejected, "reject"), (before[1], "unsure"), (before[2], "accept")])
    answer = compare_by_shard(store, ask(snapshot, {}, rating_filter=rating_filter(store, "not-rejected")))
    place = (rejected.doc_id, rejected.tool, rejected.position)
    assert [(one.doc_id, one.tool, one.position) for one in answer.goes] == [place]
    built = run_build(small_build(few_documents, as_built, ratings="not-rejected"))
    after = held(store)
    assert built.done == 1  # one of the three shards holds it; the others are as they were
    assert set(before) - set(after) == {rejected}
    come = {(one.doc_id, one.tool, one.position) for one in answer.comes}
    assert {(c.doc_id, c.tool, c.position) for c in set(after) - set(before)} == come
    for change in answer.changes:
        assert change.before.calls == sum(call.tool == change.before.tool for call in before)
        assert change.after.calls == sum(call.tool == change.after.tool for call in after)
    assert [row["rows"] for row in rows_of(snapshot, "FROM drops WHERE reason = 'rejected'")] == [1]
    # A what-if counts the call as if it took part, and says so.
    [note] = [one for one in ask(snapshot, {}).notes if "ratings" in one]
    assert note.startswith("the current C* was assembled with --ratings not-rejected, which left out 1 scored call")
    own = ("doc_id", "tool", "position", "input", "response")
    calls = trace_document(store, snapshot, rejected.doc_id).calls
    assert [c["outcome"] for c in calls if CallIdentity(*(c[name] for name in own)) == rejected] == ["rejected"]
    assert plan_build(small_build(few_documents, as_built, ratings="not-rejected")).nothing_to_do
    assert plan_build(small_build(few_documents, as_built)).nothing_to_do  # without ratings all is as it was


def test_what_if_makes_the_version_that_a_build_makes(few_documents: Path, as_built: Path) -> None:
    store, snapshot = Store(as_built), as_built / "warehouse.duckdb"
    before = held(store)
    add_ratings(store, "a", [(before[0], "accept"), (before[-1], "accept"), (before[1], "reject")])
    query = ask(snapshot, {}, rating_filter=rating_filter(store, "accepted"))
    materialise(store, query, "accepted")
    assert held(store, "accepted") == sorted({before[0], before[-1]})
    answer = compare_by_shard(store, query, n=1)
    assert sum(change.after.calls for change in answer.changes) == 2
    assert (len(answer.comes), len(answer.goes)) == (0, 1)
    assert plan_build(small_build(few_documents, as_built, ratings="accepted")).nothing_to_do


def test_nobody_has_rated_a_call(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert chosen_ratings(store, "all") is None
    with pytest.raises(UsageError, match="nobody has accepted a call"):
        chosen_ratings(store, "accepted")
    assert rating_filter(store, "not-rejected").calls == frozenset()


def test_a_call_is_known_by_all_that_it_is() -> None:
    call = ScoredCall("d", "qa", 3, "Wo?", "hier", -1.0, 1, 2.0, 2.0, 1.0, seen_before=False, seen_after=False)
    other = replace(call, response="dort")
    said = frozenset({CallIdentity("d", "qa", 3, "Wo?", "hier").digest})
    assert RatingFilter("not-rejected", "", said).reasons([call, other]) == ["rejected", ""]
    assert RatingFilter("accepted", "", said).reasons([call, other]) == ["", "not_accepted"]
