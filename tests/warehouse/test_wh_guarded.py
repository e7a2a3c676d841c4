"""A user's own query: what it may read, and how it is held within its bounds."""

from pathlib import Path

import pytest
from wh_fixtures import put, scored, snapshot_of

from warehouse.errors import QueryError, RefusedQueryError, SnapshotError
from warehouse.queries.guarded import run_query
from warehouse.store import Store


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guarded")
    store = Store(folder / "data")
    put(store, "score", "qa", "s0", [scored("d1", "qa", 0, 1.0), scored("d2", "qa", 3, 0.5)])
    (folder / "secret.csv").write_text("secret")
    return snapshot_of(store)


def ask(snapshot: Path, sql: str, timeout_s: float = 60.0, memory: str = "1GB") -> list[tuple[object, ...]]:
    with run_query(snapshot, sql, timeout_s, memory) as rows:
        return list(rows)


def test_a_query_returns_its_rows_and_the_names_of_its_columns(snapshot: Path) -> None:
    with run_query(snapshot, "SELECT doc_id, gain FROM scored ORDER BY gain") as rows:
        assert rows.columns == ("doc_id", "gain")
        assert list(rows) == [("d2", 0.5), ("d1", 1.0)]
    assert ask(snapshot, "SELECT count(*) FROM range(5000)") == [(5000,)]
    assert len(ask(snapshot, "FROM range(5000)")) == 5000  # more than one batch
    files = f"read_parquet('{snapshot.parent}/shards/score/qa/*.parquet')"  # those of the data folder are open
    assert ask(snapshot, f"SELECT count(*) FROM {files}") == [(2,)]


def test_every_statement_that_returns_rows_is_accepted(snapshot: Path) -> None:
    for sql in ("DESCRIBE scored", "SUMMARIZE scored", "SHOW TABLES", "EXPLAIN FROM scored", "VALUES (1)"):
        assert ask(snapshot, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE facts.x (a INT)",
        "DELETE FROM facts.commits",
        "COPY (SELECT 1) TO '{data}/out.csv'",
        "COPY scored TO '{data}/out.parquet'",
        "EXPORT DATABASE '{data}/out'",
        "ATTACH '{data}/other.duckdb'",
        "SET memory_limit = '4GB'",
        "PRAGMA database_size",
        "CALL pragma_version()",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{data}/out.csv'",
        "/**/ EXPLAIN ANALYZE COPY (SELECT 1) TO '{data}/out.csv'",
        "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{data}/out.csv'",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY (SELECT 1) TO '{data}/out.csv'",
        "",
        "SELEC 1",
    ],
)
def test_whatever_else_is_refused_and_leaves_nothing(snapshot: Path, sql: str) -> None:
    folder = snapshot.parent
    before = sorted(folder.rglob("*"))
    with pytest.raises(RefusedQueryError):
        ask(snapshot, sql.format(data=folder))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_text('{beside}/secret.csv')",
        "FROM read_text('{data}/../secret.csv')",
        "FROM read_csv('{beside}/secret.csv')",
        "FROM '{beside}/secret.csv'",
        "FROM glob('{beside}/*')",
        "FROM read_text('/etc/hostname')",
        "FROM read_parquet('s3://bucket/x.parquet')",
        "FROM read_csv('https://127.0.0.1:1/x.csv')",
    ],
)
def test_files_beyond_the_data_folder_are_closed(snapshot: Path, sql: str) -> None:
    with pytest.raises(RefusedQueryError, match="the data folder alone"):
        ask(snapshot, sql.format(data=snapshot.parent, beside=snapshot.parents[1]))


def test_a_query_that_takes_too_long_or_needs_too_much_memory_ends(snapshot: Path) -> None:
    endless = "SELECT count(*) FROM range(10000000000) AS a, range(10000000000) AS b WHERE a.range % 7 = b.range % 11"
    with pytest.raises(QueryError, match=r"took longer than 0\.2 s; give it more with --timeout"):
        ask(snapshot, endless, timeout_s=0.2)
    big = "SELECT count(DISTINCT hash(range)) FROM range(20000000)"
    with pytest.raises(QueryError, match=r"more than 50MB of memory; give it more with --memory"):
        ask(snapshot, big, memory="50MB")
    with pytest.raises(RefusedQueryError, match="no amount of memory"):
        ask(snapshot, "SELECT 1", memory="much")


def test_a_query_that_fails_says_why(snapshot: Path) -> None:
    with pytest.raises(QueryError, match=r"the query failed: .*nothing"):
        ask(snapshot, "SELECT nothing FROM scored")
    with pytest.raises(SnapshotError, match="no snapshot"):
        ask(snapshot.with_name("none.duckdb"), "SELECT 1")
    assert ask(snapshot, "SELECT 1") == [(1,)]  # what failed before left nothing locked


@pytest.mark.parametrize("name", ["[x]*", "**", "a[", "'"])
def test_a_folder_whose_name_is_a_pattern_can_be_asked_and_no_other(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / name)
    put(store, "score", "qa", "s0", [scored("d1", "qa", 0, 1.0)])
    (tmp_path / "x").mkdir()  # `[x]*` stands for it
    (tmp_path / "x" / "secret.csv").write_text("secret")
    snapshot = snapshot_of(store)
    assert ask(snapshot, "SELECT doc_id, gain FROM scored") == [("d1", 1.0)]
    for file in (tmp_path / "x" / "secret.csv", store.locate("secret.csv")):
        with pytest.raises((RefusedQueryError, QueryError)):
            ask(snapshot, f"FROM read_csv('{str(file).replace(chr(39), 2 * chr(39))}')")
