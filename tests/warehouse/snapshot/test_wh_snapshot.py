"""The published snapshot: what users see, while flows run, worked out by hand on a small warehouse."""

import re
import shutil
from pathlib import Path

import duckdb
import pytest
from wh_fixtures import make_run, put, put_dataset, scored, snapshot_of

from toolformer_core.annotate.call_filter import CallFilter
from warehouse.commits import Commit, RowCounts
from warehouse.errors import SnapshotError
from warehouse.indexed_calls import IndexedCalls
from warehouse.queries import Yield, best_calls, gain_histogram, rows_of, stats, yield_by_threshold
from warehouse.schema import TABLES
from warehouse.snapshot import views
from warehouse.snapshot.tables import column_comments
from warehouse.store import Store

NAN = float("nan")
SCORED = {
    "calculator": [
        scored("d1", "calculator", 3, 0.7),
        scored("d1", "calculator", 3, 1.2, input="2 + 2", response="4"),  # wins its position
        scored("d1", "calculator", 5, 0.4),  # below every threshold
        scored("d2", "calculator", 0, 2.0),
        scored("d3", "calculator", 1, NAN),  # no gain
    ],
    "qa": [scored("d1", "qa", 3, 1.0), scored("d3", "qa", 2, 0.5)],  # the first loses to the calculator's 1.2
    "mt": [
        scored("d2", "mt", 4, 3.0, input="voir", seen_after=True),  # looked up: dropped
        scored("d2", "mt", 4, 0.6, seen_after=True, seen_before=True),
        scored("d3", "mt", 9, 2.5, seen_before=True),
    ],
    "calendar": [],
}
TEXT = "ab😀defghij"
CALL = {"tool": "calculator", "position": 3, "start": 0, "end": 0, "input": "1 + 1", "response": "2", "gain": 1.2}


def build(store: Store, run_id: str = "r1") -> list[Commit]:
    docs = put(store, "ingest", "", "s0", [{"doc_id": d, "text": TEXT, "line": 1} for d in ("d1", "d2", "d3")])
    commits = [docs]
    for tool, rows in SCORED.items():
        balances = [RowCounts("calls", len(rows) + 3, len(rows), {"unparsable": 1}, {"timeout": 2})]
        commits.append(put(store, "score", tool, "s0", rows, balances=balances, inputs=(docs.files[0].digest,)))
    inputs = tuple(commit.files[0].digest for commit in commits)
    commits.append(put(store, "assemble", "", "s0", [{"doc_id": "d1", "text": TEXT, "calls": [CALL]}], inputs=inputs))
    store.write_run(make_run(run_id, [commit.key for commit in commits]))
    put_dataset(store, "cstar", commits[-1:], run_id, counts={"qa": 1}, thresholds={"qa": 1.0})
    return commits


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published once: it is read-only."""
    folder = tmp_path_factory.mktemp("data")
    store = Store(folder / "it's a*b")  # a name that is not a pattern: the neighbour's rows stay out
    build(Store(folder / "it's a neighbour b"))
    build(store)
    return snapshot_of(store)


def test_yield_by_threshold_by_hand(snapshot: Path) -> None:
    # 0.5: calculator d1@3 (1.2) and d2@0 (2.0); qa d3@2 (0.5); mt d2@4 (0.6) and d3@9 (2.5)
    # 1.0: calculator the same two; mt d3@9 alone.   2.0: calculator d2@0; mt d3@9
    expected = [
        *(("calculator", 0.5, 2), ("calculator", 1.0, 2), ("calculator", 2.0, 1)),
        *(("calendar", 0.5, 0), ("calendar", 1.0, 0), ("calendar", 2.0, 0)),
        *(("mt", 0.5, 2), ("mt", 1.0, 1), ("mt", 2.0, 1)),
        *(("qa", 0.5, 1), ("qa", 1.0, 0), ("qa", 2.0, 0)),
    ]
    wanted = [Yield(tool, tau, n, n) for tool, tau, n in expected]
    assert yield_by_threshold(snapshot) == wanted
    assert [Yield(**row) for row in rows_of(snapshot, "SELECT * FROM yield_by_threshold")] == wanted
    # at 0.4 d1 has two calculator calls: @3 and @5
    assert IndexedCalls(snapshot).yields(CallFilter({"calculator": 0.4})) == [Yield("calculator", 0.4, 2, 3)]


def test_gains_are_counted_in_bins_closed_below(snapshot: Path) -> None:
    # calculator: 0.4 | 0.7 | 1.2 | 2.0, and one that is no number; mt: 0.6 | 2.5, 3.0; qa: 0.5 | 1.0
    found = [(one.tool, one.low) for one in gain_histogram(snapshot) for _ in range(one.calls)]
    lows = {"calculator": (0.0, 0.5, 1.0, 2.0), "mt": (0.5, 2.5, 3.0), "qa": (0.5, 1.0)}
    assert found == [(tool, low) for tool, own in lows.items() for low in own]
    # from -2 to 4 in steps of 0.5 there are 12 bins, between two that are open
    labels = [one.label for one in gain_histogram(snapshot)][:14]
    assert (labels[0], labels[1], labels[-1]) == ("below -2.0", "-2.0 to -1.5", "+4.0 and more")


def test_stats_add_up(snapshot: Path) -> None:
    found = stats(snapshot)
    assert found.conserved
    assert [(b.stage, b.tool) for b in found.balances] == [
        ("ingest", ""),
        *(("score", tool) for tool in ("calculator", "calendar", "mt", "qa")),
        ("assemble", ""),
    ]
    calculator = found.balances[1]
    assert (calculator.rows_in, calculator.kept, calculator.shards) == (8, 5, 1)
    assert (calculator.dropped, calculator.failed) == ({"unparsable": 1}, {"timeout": 2})
    assert found.yields == tuple(yield_by_threshold(snapshot))
    drops = rows_of(snapshot, "SELECT kind, sum(rows)::BIGINT AS n FROM drops WHERE stage = 'score' GROUP BY ALL")
    assert {row["kind"]: row["n"] for row in drops} == {"dropped": 4, "failed": 8}  # of each tool one and two


def test_samples_show_the_text_around_the_position(snapshot: Path) -> None:
    best = best_calls(snapshot, n=2)
    assert [(s.tool, s.doc_id, s.gain) for s in best] == [("mt", "d3", 2.5), ("calculator", "d2", 2.0)]
    assert [(s.before, s.after) for s in best] == [("ab😀defghi", "j"), ("", "ab😀defghij")]
    kept = best_calls(snapshot, kept=True)  # those that stand in the texts
    assert [(s.tool, s.doc_id, s.position, s.gain) for s in kept] == [("calculator", "d1", 3, 1.2)]


def test_a_snapshot_of_another_version_says_what_to_do(snapshot: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.duckdb"
    shutil.copy(snapshot, older)
    older.chmod(0o644)
    with duckdb.connect(str(older)) as connection:
        connection.execute("ALTER TABLE facts.gains DROP COLUMN alike")
        connection.execute("UPDATE facts.about SET value = '1, duckdb' WHERE name = 'index'")
    with pytest.raises(SnapshotError, match=r"another version of this program .* toolformer reconcile"):
        IndexedCalls(older)


def test_the_latest_completed_run_decides_what_is_current(store: Store) -> None:
    old = build(store)
    new = put(store, "score", "qa", "s0", [scored("d2", "qa", 7, 9.0)], parts={"config": "c2"})
    store.write_run(make_run("r2", [old[0].key, new.key], started="2024-06-01"))
    path = snapshot_of(store)
    assert [(y.tool, y.examples) for y in yield_by_threshold(path)][:1] == [("qa", 1)]
    # the user goes back: the third run reuses the first one's commits, and nothing is counted twice
    store.write_run(make_run("r3", [commit.key for commit in old], started="2024-07-01"))
    store.write_run(make_run("r4", [], started="2024-08-01", flow="finetune"))  # used no commits
    path = snapshot_of(store)
    assert [(y.tool, y.examples) for y in yield_by_threshold(path)][-3] == ("qa", 1)
    assert rows_of(path, "SELECT count(*) AS n FROM scored")[0]["n"] == 10
    assert rows_of(path, 'SELECT count(*) AS n FROM shards WHERE NOT "current"')[0]["n"] == 1


def test_a_run_that_has_not_completed_hides_none_that_has(store: Store) -> None:
    def gains(run_id: str, state: str) -> list[float]:
        """The gains shown after a run, of one commit with a gain of its own, on the day of its number."""
        gain = float(run_id[1:])
        commit = put(store, "score", "qa", "s0", [scored("d1", "qa", 1, gain)], parts={"config": run_id})
        store.write_run(make_run(run_id, [commit.key], started=f"2024-06-0{run_id[1:]}", state=state))
        return [row["gain"] for row in rows_of(snapshot_of(store), "SELECT gain FROM scored")]

    assert gains("r1", "failed") == [1.0]  # nothing has completed: better that than nothing
    assert gains("r2", "running") == [2.0]
    assert gains("r2", "completed") == [2.0]
    assert gains("r3", "running") == [2.0]
    assert gains("r3", "failed") == [2.0]
    assert gains("r4", "completed") == [4.0]


def test_without_runs_the_newest_commit_of_a_shard_is_current(store: Store) -> None:
    put(store, "score", "qa", "s0", [scored("d1", "qa", 1, 1.0)], parts={"config": "b"}, created="2024-01-02")
    put(store, "score", "qa", "s0", [scored("d1", "qa", 1, 9.0)], parts={"config": "a"}, created="2024-01-01")
    assert rows_of(snapshot_of(store), "SELECT gain FROM scored") == [{"gain": 1.0}]


def test_lineage_does_not_mix_up_tools_whose_data_are_alike(store: Store) -> None:
    samples = {tool: put(store, "sample", tool, "s0", []) for tool in ("mt", "qa")}
    assert samples["mt"].files[0].digest == samples["qa"].files[0].digest
    score = put(store, "score", "qa", "s0", [], inputs=(samples["qa"].files[0].digest,))
    stale = put(store, "sample", "qa", "s0", [], parts={"config": "before"})  # the same rows, of another run
    example = put(store, "assemble", "", "s0", [], inputs=(score.files[0].digest,))
    store.write_run(make_run("r0", [stale.key], started="2024-01-01"))
    store.write_run(make_run("r1", [*(c.key for c in samples.values()), score.key, example.key]))
    put_dataset(store, "c", [example])
    found = rows_of(snapshot_of(store), "SELECT DISTINCT commit_id FROM lineage")
    assert {row["commit_id"] for row in found} == {samples["qa"].id, score.id, example.id}


def test_an_empty_store_has_every_table_with_its_types(tmp_path: Path, snapshot: Path) -> None:
    path = snapshot_of(Store(tmp_path))
    with duckdb.connect(str(path), read_only=True) as connection:
        for name, schema in TABLES.items():
            found = connection.sql(f"SELECT * FROM {name}").to_arrow_table()
            assert found.column_names == schema.names
            assert [f.type for f in found.schema] == [f.type for f in schema], name
        assert connection.execute("SELECT count(*) FROM yield_by_threshold").fetchone() == (0,)
        silent = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL"
        assert connection.execute(silent).fetchall() == []
        columns = connection.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal"
        ).fetchall()
        assert [(table, name) for table, name, comment in columns if not comment] == []
        known = {name for table, column, _ in columns for name in (column, f"{table}.{column}")}
        assert column_comments().keys() - known == set()  # none of a column that is gone
    assert stats(path).balances == ()
    assert best_calls(path) == []
    with duckdb.connect(str(snapshot), read_only=True) as connection:  # and views have the same columns
        for name in ("documents", "scored", "examples", "dataset_examples"):
            found = connection.sql(f"SELECT * FROM {name}").to_arrow_table()
            assert [(f.name, f.type) for f in found.schema] == [(f.name, f.type) for f in TABLES[name]], name


def test_every_query_of_the_readme_runs_and_finds_something(store: Store) -> None:
    commits = build(store)
    samples = [{"doc_id": "d1", "tool": "qa", "position": 3, "raw": "QA(x)", "outcome": "ok", "input": "x", "count": 2}]
    drawn = put(store, "sample", "qa", "s0", samples)
    rows = [{"tool": "qa", "input": "x", "failure": "no_result"}]
    failed = put(store, "execute", "qa", "s0", rows, balances=[RowCounts("calls", 1, 0, failed={"no_result": 1})])
    store.write_run(make_run("r1", [c.key for c in (*commits, drawn, failed)]))
    path = snapshot_of(store)
    readme = (Path(views.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"```sql\n(.*?)```", readme, re.DOTALL)
    assert len(found) == 11
    for sql in found:
        assert rows_of(path, sql), sql
    for name in rows_of(path, "SELECT table_name AS n FROM information_schema.tables WHERE table_schema = 'main'"):
        assert f"| `{name['n']}` |" in readme
    for name in ("gains", "slots", "document_locations", "document_files"):
        assert f"| `facts.{name}` |" in readme


def test_what_a_reader_meets_when_something_is_wrong(tmp_path: Path, snapshot: Path) -> None:
    with pytest.raises(SnapshotError, match="no snapshot"):
        stats(tmp_path / "none.duckdb")
    (tmp_path / "bad.duckdb").write_bytes(b"x" * 5000)
    with pytest.raises(SnapshotError, match="cannot open"):
        stats(tmp_path / "bad.duckdb")
    with pytest.raises(SnapshotError, match="query failed"):
        rows_of(snapshot, "SELECT nothing FROM nowhere")
    (tmp_path / "warehouse.duckdb").mkdir()
    with pytest.raises(SnapshotError, match="cannot publish"):
        snapshot_of(Store(tmp_path))
    assert snapshot.stat().st_mode & 0o222 == 0
