"""A snapshot that is changed step by step shows what one written from nothing shows, and only what is new is read."""

import tempfile
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wh_fixtures import make_run, put, put_dataset, scored, snapshot_of

from warehouse.catalog import Catalog
from warehouse.commits import Commit
from warehouse.facts import Facts
from warehouse.queries import rows_of, yield_by_threshold
from warehouse.snapshot import index
from warehouse.snapshot import publish as publishing
from warehouse.snapshot.publish import publish, run_snapshot
from warehouse.snapshot.relations import parquet_sql
from warehouse.store import Store

# The tables whose rows are numbered as they came, without these numbers.
NUMBERED = {
    "slots": "SELECT commit_id, tool, shard FROM facts.slots",
    "gains": "SELECT commit_id, g.* EXCLUDE (slot) FROM facts.gains AS g JOIN facts.slots USING (slot)",
    "gain_bins": "SELECT commit_id, b.* EXCLUDE (slot) FROM facts.gain_bins AS b JOIN facts.slots USING (slot)",
    "document_files": "SELECT path, digest, shard FROM facts.document_files",
    "document_locations": "SELECT doc_id, path FROM facts.document_locations JOIN facts.document_files USING (file)",
    "about": "SELECT * FROM facts.about WHERE name NOT IN ('published', 'sorted locations')",
}


def contents(snapshot: Path) -> dict[str, list[str]]:
    """All rows of all tables and views, and the SQL of the views."""
    with duckdb.connect(str(snapshot), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'facts'").fetchall()
        queries = {name: NUMBERED.get(name, f"FROM facts.{name}") for (name,) in names}
        main = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'")
        queries |= {f"main.{name}": f"FROM {name}" for (name,) in main.fetchall()}
        queries["sql"] = "SELECT view_name, sql, comment FROM duckdb_views() WHERE NOT internal"
        return {name: sorted(map(str, connection.execute(sql).fetchall())) for name, sql in queries.items()}


def grow(store: Store, shard: str, config: str, run: dict[tuple[str, str], Commit]) -> None:
    """Write a shard, or write it again with another config: the gains follow from the config."""
    ids = [f"{shard}-{letter}" for letter in "ab"]
    documents = put(store, "ingest", "", shard, [{"doc_id": one, "text": one} for one in ids])
    gain = 0.5 * (1 + int(config))
    rows = [scored(ids[0], "qa", 1, gain), scored(ids[1], "qa", 2, gain, input="x")]
    read = (documents.files[0].digest,)
    run["ingest", shard] = documents
    run["score", shard] = put(store, "score", "qa", shard, rows, parts={"config": config}, inputs=read)
    kept = [{"doc_id": ids[0]}]
    run["assemble", shard] = put(store, "assemble", "", shard, kept, parts={"config": config}, inputs=read)


STEP = st.tuples(
    st.sampled_from(["grow", "end", "lose", "remove"]), st.sampled_from(["s0", "s1", "s2"]), st.sampled_from("012")
)
STEPS = st.lists(STEP, min_size=3, max_size=5)


@settings(max_examples=3, deadline=None)
@given(STEPS, st.booleans())
def test_step_by_step_and_from_nothing_give_the_same(steps: list[tuple[str, str, str]], recheck: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, run, runs = Store(Path(folder, "data")), dict[tuple[str, str], Commit](), 1
        with Catalog(Path(folder, "data", "catalog.duckdb"), store=store) as catalog:
            for what, shard, config in [("grow", "s0", "0"), *steps]:
                if what == "grow":
                    grow(store, shard, config, run)
                elif what == "lose" and (commit := run.get(("score", shard))):  # a file is gone: the commit is broken
                    store.files.delete(commit.files[0].path)
                elif what == "remove":  # as `gc` does
                    for stage in ("score", "assemble"):
                        if commit := run.pop((stage, shard), None):
                            store.files.delete(f"commits/{commit.id}.json")
                state = "completed" if what == "end" else "running"
                keys = [commit.key for commit in run.values()]
                store.write_run(make_run(f"r{runs}", keys, started=f"2024-06-0{runs}", state=state))
                if what == "end":
                    examples = [commit for (stage, _), commit in run.items() if stage == "assemble"]
                    put_dataset(store, "c", examples, f"r{runs}", created=f"t{runs}")
                    runs += 1
                catalog.catch_up(store)
                catalog.record(runs=store.runs([f"r{max(1, runs - (what == 'end'))}"]))
                path = publish(store, catalog, recheck=recheck or what == "lose")
            changed = contents(path)
        assert changed == contents(snapshot_of(store, anew=True))


def test_a_shard_that_is_computed_again_under_the_same_name_is_read_again(store: Store) -> None:
    first = put(store, "score", "qa", "s0", [scored("d", "qa", 0, 1.0)], created="2024-01-01T00:00:00+00:00")
    assert yield_by_threshold(snapshot_of(store))[2].calls == 0  # at 2.0
    store.files.delete(f"commits/{first.id}.json")
    store.files.delete(first.files[0].path)
    again = put(store, "score", "qa", "s0", [scored("d", "qa", 0, 2.0)], created="2024-01-02T00:00:00+00:00")
    assert again.id == first.id
    assert yield_by_threshold(snapshot_of(store, recheck=False))[2].calls == 1


def test_a_snapshot_of_one_run_asks_only_for_facts_that_the_published_one_lacks(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [put(store, "score", "qa", f"s{n}", [scored(f"d{n}", "qa", 0, 1.0)]).key for n in range(3)]
    store.write_run(make_run("r0", keys[:2]))
    asked: list[int] = []
    real = Catalog.facts_of
    with Catalog(tmp_path / "catalog.duckdb", store=store) as catalog:
        publish(store, catalog)
        keys.append(put(store, "score", "qa", "s3", [scored("d3", "qa", 0, 1.0)]).key)
        catalog.catch_up(store)
        store.write_run(make_run("r1", keys[1:]))
        catalog.record(runs=store.runs(["r1"]))

        def facts_of(self: Catalog, given: Facts) -> Facts:
            asked.append(given["commits"].num_rows)
            return real(self, given)

        monkeypatch.setattr(Catalog, "facts_of", facts_of)
        with run_snapshot(store, catalog, "r1") as own:
            shown = rows_of(own, "SELECT doc_id FROM scored ORDER BY ALL")
            assert [row["doc_id"] for row in shown] == ["d1", "d2", "d3"]
            assert rows_of(own, "SELECT run_id FROM facts.runs") == [{"run_id": "r1"}]
    assert asked == [1]  # of the run's commits the one that is new


def test_many_files_are_listed_and_not_looked_at(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        put(store, "score", "qa", f"s{number}", [scored(f"d{number}", "qa", 0, 1.0)], created="2999-01-01")
    monkeypatch.setattr("warehouse.snapshot.publish._FEW", 3)
    looks: list[str] = []
    real = type(store.files).stat
    monkeypatch.setattr(type(store.files), "stat", lambda files, path: looks.append(path) or real(files, path))
    assert len(rows_of(snapshot_of(store), "FROM scored")) == 4
    assert looks == []
    victim = next(iter(store.files.walk("shards")))
    (tmp_path / victim).unlink()
    assert len(rows_of(snapshot_of(store), "FROM scored")) == 3
    assert looks == [victim]  # what the list does not show as it should be


def test_documents_are_sorted_again_once_many_were_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_UNSORTED", 3)
    store, orders = Store(tmp_path), []
    for shard, ids in (("s0", ["m", "n"]), ("s1", ["a", "z"]), ("s2", ["b", "c"])):
        put(store, "ingest", "", shard, [{"doc_id": one} for one in ids])
        path = snapshot_of(store, recheck=False)
        rows = rows_of(path, "SELECT doc_id FROM facts.document_locations ORDER BY rowid")
        orders.append([row["doc_id"] for row in rows])
    # two unsorted are no more than three; four are
    assert orders == [["m", "n"], ["m", "n", "a", "z"], ["a", "b", "c", "m", "n", "z"]]


def test_a_copy_is_of_this_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last, copy = snapshot_of(Store(tmp_path)), tmp_path / "copy"
    publishing._begin_as_copy(last, copy)
    assert rows_of(copy, "FROM facts.stages") == rows_of(last, "FROM facts.stages")
    monkeypatch.setattr(publishing, "FORMAT", "another")
    publishing._begin_as_copy(last, tmp_path / "other")
    publishing._begin_as_copy(tmp_path / "none", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_long_list_of_files_is_one_text_with_the_same_rows(tmp_path: Path) -> None:
    store = Store(tmp_path / "it's a [b]*")
    files = [put(store, "ingest", "", f"s{n:02}", [{"doc_id": f"d{n}"}]).files[0].path for n in range(12)]
    sql = parquet_sql(map(store.locate, files))
    assert "string_split" in sql
    with duckdb.connect() as connection:  # the module's own may hold another test's unread result
        found = connection.execute(f"SELECT doc_id, file_index FROM {sql} ORDER BY file_index").fetchall()
    assert found == [(f"d{n}", n) for n in range(12)]
    assert "string_split" not in parquet_sql([f"a\nb{n}" for n in range(12)])
