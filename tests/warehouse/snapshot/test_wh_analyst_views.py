"""What an analyst reads: times, versions of C*, kept calls, costs, prompts and trainings, worked out by hand."""

import datetime as dt
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pytest
from wh_fixtures import a_training, make_run, put, put_dataset, scored, snapshot_of

from warehouse.commits import Commit, Dataset, RowCounts
from warehouse.queries import current_build, rows_of, stats
from warehouse.records import write_prompt, write_training
from warehouse.store import Store

CREATED = "2024-05-01T12:00:00.250000+00:00"
QA, OTHER = {"doc_id": "d1", "text": "a [QA(x) -> y] b"}, {"doc_id": "d2", "text": "[QA(u) -> v] [Calculator(1) -> 1]"}


def call(tool: str, position: int, input_: str, gain: float) -> dict[str, Any]:
    made = {"tool": tool, "position": position, "start": 1, "end": 2, "input": input_, "response": "r", "gain": gain}
    return made


def assembled(store: Store, config: str, *examples: dict[str, Any], shard: str = "s0") -> Commit:
    return put(store, "assemble", "", shard, list(examples), parts={"config": config}, seconds=0.5, counters={})


def version(store: Store, name: str, commits: list[Commit], run_id: str, made: str = "m1", **more: Any) -> Dataset:
    told = {"counts": {"qa": 2}, "thresholds": {"qa": 1.0}, "created": CREATED, "made": made}
    return put_dataset(store, name, commits, run_id, **told, **more)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two documents, three tools, three kept calls, one version; a stage takes 1.5 s and 100 tokens but for these.

    Drawing takes 4 s and 900 tokens for qa, which keeps two calls; mt keeps none.
    """
    store = Store(tmp_path / "data")
    one = {**QA, "calls": [call("qa", 2, "x", 1.2)]}
    two = {**OTHER, "calls": [call("qa", 0, "u", 0.8), call("calculator", 1, "1", 2.0)]}
    scores = {
        "qa": [
            scored("d1", "qa", 2, 1.2, input="x"),
            scored("d1", "qa", 2, 0.1),
            scored("d2", "qa", 0, 0.8, input="u"),
        ],
        "calculator": [scored("d2", "calculator", 1, 2.0, input="1")],
        "mt": [],
    }
    commits = [put(store, "ingest", "", "corpus", [{"doc_id": "d1"}, {"doc_id": "d2"}], counters={}, seconds=2.0)]
    for tool, rows in scores.items():
        more = {"seconds": 4.0, "counters": {"lm_tokens": 900}} if tool == "qa" else {}
        commits.append(put(store, "sample", tool, "s0", [], parts={"prompt": f"{tool}-1", "code": "s"}, **more))
        commits.append(put(store, "score", tool, "s0", rows))
    last = assembled(store, "built", one, two)
    store.write_run(make_run("r1", [commit.key for commit in (*commits, last)], CREATED, finished=CREATED))
    version(store, "cstar", [last], "r1")
    return store


def test_times_are_timestamps_in_utc_wherever_a_user_sees_them(store: Store) -> None:
    path = snapshot_of(store)
    noon = dt.datetime(2024, 5, 1, 12, 0, 0, 250_000)
    assert rows_of(path, "SELECT started, finished FROM runs") == [{"started": noon, "finished": noon}]
    assert rows_of(path, "SELECT created FROM datasets") == [{"created": noon}]
    assert rows_of(path, "SELECT DISTINCT created FROM shards") == [{"created": noon.replace(microsecond=0)}]
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute(
            """SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE schema_name = 'main'
            AND NOT internal AND column_name IN ('created', 'started', 'finished', 'evaluated') ORDER BY ALL"""
        ).fetchall()
    # a document's date is the corpus's word, a day as a rule, and no time of this warehouse
    times = ["accuracy", "datasets", "evaluations", "perplexity", "runs", "runs", "shards", "trainings"]
    assert [table for table, _, kind in found if kind == "TIMESTAMP"] == times
    assert [row for row in found if row[2] != "TIMESTAMP"] == [("documents", "created", "VARCHAR")]
    now = current_build(path)  # what commands print stays ISO text
    assert (now.started, now.created) == (CREATED, CREATED)


def test_until_there_is_a_version_examples_name_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    commits = [put(store, "ingest", "", "corpus", [{"doc_id": "d1"}]), assembled(store, "c", {"doc_id": "d1"})]
    store.write_run(make_run("r1", [commit.key for commit in commits], state="running"))
    path = snapshot_of(store)
    assert rows_of(path, "SELECT dataset, version FROM examples") == [{"dataset": "", "version": ""}]
    assert rows_of(path, "FROM dataset_examples") == []


def test_every_version_has_its_examples_once_however_often_it_was_made(store: Store) -> None:
    (built,) = store.datasets()
    other = assembled(store, "strict", {**QA, "calls": []})
    same = assembled(store, "same", {**QA, "calls": []})  # the same content by another way, in a file of its own
    assert (other.files[0].digest, other.files[0].path) != (same.files[0].digest, same.files[0].path)
    assert other.files[0].digest == same.files[0].digest
    ways = [version(store, "strict", [one], "w", made) for one, made in ((other, "a1"), (same, "a2"))]
    gone = version(store, "lost", [assembled(store, "lost", {"doc_id": "d9"})], "w")
    version(store, "again", [other], "w")
    store.files.delete(gone.files[0].path)
    sql = "SELECT dataset, version, doc_id FROM dataset_examples ORDER BY ALL"

    def listed() -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in rows_of(snapshot_of(store), sql)]

    strict = ways[0].version
    cstar = [("cstar", built.version, "d1"), ("cstar", built.version, "d2")]
    expected = [("again", strict, "d1"), *cstar, ("strict", strict, "d1")]
    assert listed() == expected
    store.files.delete(other.files[0].path)  # `strict` was made in two ways, `again` in this one alone
    assert listed() == expected[1:]


def test_kept_calls_have_their_losses(store: Store) -> None:
    (held,) = store.datasets()
    rows = rows_of(snapshot_of(store), "FROM kept_calls ORDER BY doc_id, position")
    assert [(r["doc_id"], r["tool"], r["position"], r["input"], r["response"], r["gain"]) for r in rows] == [
        ("d1", "qa", 2, "x", "r", 1.2),
        ("d2", "qa", 0, "u", "r", 0.8),
        ("d2", "calculator", 1, "1", "r", 2.0),
    ]
    # `scored` gives a call L- = L(e(c, eps)) = 3 + gain, L(eps) = 4 + gain and L+ = 3
    assert [(r["loss_plain"], r["loss_call"], r["loss_response"]) for r in rows] == [
        (5.2, 4.2, 3.0),
        (4.8, 3.8, 3.0),
        (6.0, 5.0, 3.0),
    ]
    assert {(r["dataset"], r["version"]) for r in rows} == {("cstar", held.version)}


def test_a_document_has_the_host_of_its_url(tmp_path: Path) -> None:
    urls = {"a": "https://me@News.Example:8080/x?y#z", "b": "no address", "c": None, "d": "http://localhost"}
    put(Store(tmp_path), "ingest", "", "corpus", [{"doc_id": name, "url": url} for name, url in urls.items()])
    hosts = rows_of(snapshot_of(Store(tmp_path)), "SELECT host FROM documents ORDER BY doc_id")
    assert [row["host"] for row in hosts] == ["news.example", None, None, "localhost"]


def test_costs_per_kept_call(store: Store) -> None:
    rows = rows_of(snapshot_of(store), "FROM costs")
    found = {(r["stage"], r["tool"]): tuple(r.values())[2:] for r in rows}
    # shards, seconds, tokens, kept calls, seconds and tokens per kept call
    assert found == {
        ("ingest", ""): (1, 2.0, 0, 3, 2.0 / 3, 0.0),  # shared by the calls of all tools
        ("sample", "calculator"): (1, 1.5, 100, 1, 1.5, 100.0),
        ("sample", "mt"): (1, 1.5, 100, 0, None, None),
        ("sample", "qa"): (1, 4.0, 900, 2, 2.0, 450.0),
        ("score", "calculator"): (1, 1.5, 100, 1, 1.5, 100.0),
        ("score", "mt"): (1, 1.5, 100, 0, None, None),
        ("score", "qa"): (1, 1.5, 100, 2, 0.75, 50.0),
        ("assemble", ""): (1, 0.5, 0, 3, 0.5 / 3, 0.0),
    }
    assert [r["stage"] for r in rows] == ["ingest", *["sample"] * 3, *["score"] * 3, "assemble"]


def test_prompts_are_told_with_their_text_if_it_is_stored(store: Store) -> None:
    write_prompt(store, "qa", "qa-1", "Ask.\nInput: {text}\nOutput:")
    write_prompt(store, "qa", "qa-9", "no run used it")
    drawn = put(store, "sample", "qa", "s0", [], parts={"prompt": "qa-0", "code": "s"}, created="2024-01-01")
    store.write_run(make_run("r0", [drawn.key], "2024-01-01"))
    rows = rows_of(snapshot_of(store), "FROM prompts")
    assert [tuple(row.values()) for row in rows] == [
        ("calculator", "calculator-1", True, ["r1"], None),
        ("mt", "mt-1", True, ["r1"], None),
        ("qa", "qa-0", False, ["r0"], None),
        ("qa", "qa-1", True, ["r1"], "Ask.\nInput: {text}\nOutput:"),
    ]


def test_trainings_and_their_steps_are_rows(store: Store) -> None:
    write_training(store, a_training("cstar-toolformer-1"))
    without_run = {"run_id": None, "checkpoint": "/shared/cstar-cc-2/model", "dev_loss": None, "finished": CREATED}
    write_training(store, a_training("cstar-cc-2", **without_run))
    for _ in range(2):  # recorded twice is recorded once
        write_training(store, a_training("cstar-toolformer-1"))
        rows = rows_of(snapshot_of(store), "SELECT *, (recipe->>'steps')::INT AS n FROM trainings ORDER BY job")
    assert [(r["job"], r["run_id"], r["dev_loss"], r["checkpoint"], r["n"]) for r in rows] == [
        ("cstar-cc-2", None, None, "/shared/cstar-cc-2/model", 8),
        ("cstar-toolformer-1", "0a1b", 2.0, f"{store.root}/finetunes/cstar-toolformer-1/model", 8),
    ]
    assert rows[0]["finished"] == dt.datetime(2024, 5, 1, 12, 0, 0, 250_000)
    curve = [
        {"step": 0, "dev_perplexity": 9.0},
        {"step": 1, "loss": 2.5, "learning_rate": 1e-5, "tokens_per_second": 80.0},
        {"step": 2, "loss": 2.0, "learning_rate": 2e-5, "tokens_per_second": 90.0, "dev_perplexity": 7.5},
    ]
    write_training(store, a_training("cstar-toolformer-1", curve=curve))
    # the other one is of an earlier version, whose record has no curve
    assert [tuple(row.values()) for row in rows_of(snapshot_of(store), "FROM training_steps")] == [
        ("cstar-toolformer-1", "toolformer", "cstar", "v1", 0, None, None, None, 9.0),
        ("cstar-toolformer-1", "toolformer", "cstar", "v1", 1, 2.5, 1e-5, 80.0, None),
        ("cstar-toolformer-1", "toolformer", "cstar", "v1", 2, 2.0, 2e-5, 90.0, 7.5),
    ]


def test_what_if_changes_nothing_that_is_current(store: Store) -> None:
    base = store.runs()[0]
    keys = [key for key in base.commits if key.stage != "assemble"]
    other = assembled(store, "strict", {**QA, "calls": []})
    store.write_run(make_run("w1", [*keys, other.key], "2024-06-01T00:00:00+00:00", flow="what-if"))
    strict = version(store, "strict", [other], "w1")
    views = ("examples", "kept_calls", "costs", "best_calls", "scored", "yield_by_threshold")
    for state in ("completed", "failed"):  # of the build: what it left is what counts
        store.write_run(make_run("r1", base.commits, CREATED, state=state))
        path = snapshot_of(store)
        (own,) = rows_of(path, "SELECT DISTINCT dataset FROM examples")
        assert own == {"dataset": "cstar"}
        now = current_build(path)
        assert (now.run_id, now.name) == ("r1", "cstar")
        found = rows_of(path, "SELECT DISTINCT version FROM dataset_examples WHERE dataset = 'strict'")
        assert found == [{"version": strict.version}]
        assert len(rows_of(path, "SELECT DISTINCT stage FROM lineage WHERE dataset = 'strict'")) == 1
        assert [len(rows_of(path, f"FROM {view}")) for view in views] == [2, 3, 8, 3, 4, 9]
    # a build that repeats with those settings uses the same commits, and they are current then
    store.write_run(make_run("r2", [*keys, other.key], "2024-07-01T00:00:00+00:00"))
    assert [row["doc_id"] for row in rows_of(snapshot_of(store), "FROM examples")] == ["d1"]


def executed(store: Store, tool: str, shard: str, kept: int, failed: dict[str, int], **counters: Any) -> Commit:
    balance = RowCounts("calls", kept + sum(failed.values()), kept, failed=failed)
    return put(store, "execute", tool, shard, [], balances=(balance,), counters=counters, host=f"host-{shard}")


def test_counters_add_up_and_percentiles_are_interpolated(store: Store) -> None:
    """Two shards of one tool, one shard of an earlier version's, and a shard of a run that is not current."""
    first = {"cache_hits": 5, "transient": 2, "requested": 6, "calls": 9, "tool_seconds": 1.5, "tool_cost": 0.9}
    second = {"cache_hits": 0, "transient": 0, "requested": 4, "calls": 4, "tool_seconds": 1.1, "tool_cost": 0.4}
    commits = [
        executed(store, "qa", "s0", 7, {"timeout": 2, "no_result": 2}, **first, ms_1=1, ms_128=8),
        executed(store, "qa", "s1", 4, {}, **second, ms_128=2, ms_256=1, ms_1024=1),
        executed(store, "mt", "s0", 3, {"crashed": 1}, cache_hits=1, answered=100.0),
    ]
    executed(store, "qa", "s9", 50, {}, requested=50, calls=50, transient=0, ms_1=50)
    store.write_run(make_run("r1", [commit.key for commit in commits]))
    path = snapshot_of(store)
    rows = rows_of(path, "SELECT * FROM tool_costs")
    assert list(map(asdict, stats(path).tools)) == rows
    costs = {row.pop("tool"): row for row in rows}
    qa = costs["qa"]
    assert {name: qa[name] for name in qa if not name.startswith("p")} == {
        "shards": 2,
        "hosts": 2,
        "questions": 15,  # 7 + 2 + 2, and 4
        "answered": 11,
        "failed_transient": 2,
        "failed_lasting": 2,  # 4 - 2, and 0
        "from_cache": 5,
        "requested": 10,
        "calls": 13,
        "retries": 3,
        "seconds": pytest.approx(2.6),
        "mean_ms": pytest.approx(200.0),  # 2,600 ms / 13
        "cost": pytest.approx(1.3),
    }
    # of 13 calls 1 is in (0, 1] ms, 10 in (64, 128], 1 in (128, 256], 1 in (512, 1024]
    assert qa["p50_ms"] == pytest.approx(64 + 64 * (6.5 - 1) / 10)  # the 6.5th call: 99.2
    assert qa["p95_ms"] == pytest.approx(512 + 512 * (12.35 - 12) / 1)  # the 12.35th: 691.2
    assert qa["p99_ms"] == pytest.approx(512 + 512 * (12.87 - 12) / 1)
    # what an earlier version did not count is null
    counted = {"shards": 1, "hosts": 1, "questions": 4, "answered": 3, "from_cache": 1}
    assert costs["mt"] == {**dict.fromkeys(costs["qa"]), **counted}
