"""Files that another program has open in DuckDB for writing, and queries in little memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wh_fixtures import make_run, program, put, scored, snapshot_of

from warehouse.catalog import Catalog
from warehouse.errors import LockHeldError, SnapshotError
from warehouse.queries import rows, stats
from warehouse.queries.rows import low_memory, open_snapshot, rows_of
from warehouse.snapshot.pack import pack
from warehouse.store import Store

_HOLD = """
import duckdb, sys
with duckdb.connect(sys.argv[1]) as connection:
    connection.execute("CREATE TABLE mine AS SELECT 1 AS n")  # written beside the file until it is closed
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(file: Path) -> Iterator[int]:
    """Another program writes to a DuckDB file, and is killed; its process id."""
    file.chmod(0o644)
    with program(_HOLD, file) as process:
        yield process.pid


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "data")
    put(store, "ingest", "", "corpus", [{"doc_id": "d1"}])
    return store


def test_who_has_the_snapshot_open_is_named_and_a_new_one_is_read(store: Store, tmp_path: Path) -> None:
    snapshot = snapshot_of(store)
    with held(snapshot) as pid:
        with pytest.raises(SnapshotError, match=rf"\(process {pid}\).*close it there.*duckdb -readonly") as told:
            rows_of(snapshot, "FROM documents")
        assert "reconcile" not in str(told.value)
        snapshot_of(store)
        assert len(rows_of(snapshot, "FROM documents")) == 1
    assert len(rows_of(snapshot, "FROM documents")) == 1
    out = tmp_path / "packed.duckdb"
    pack(snapshot, out)
    with held(out):
        pack(snapshot, out)
        assert len(rows_of(out, "FROM documents")) == 1


def test_a_catalog_that_is_open_elsewhere_is_not_damaged(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "data" / "catalog.duckdb"
    Catalog(path, store=store).close()
    with held(path) as pid, pytest.raises(LockHeldError, match=rf"catalog.duckdb is held by process {pid} on [^ ]+ \("):
        Catalog(path, store=store)
    assert not (tmp_path / "data" / "quarantine").exists()


LIMIT = "SELECT current_setting('memory_limit') AS held, current_setting('temp_directory') AS folder"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    store = Store(tmp_path)
    commit = put(store, "score", "qa", "s0", [scored("d0", "qa", 0, 1.0)])
    store.write_run(make_run("r0", [commit.key]))
    return snapshot_of(store)


def test_the_limit_holds_inside_the_block_alone(snapshot: Path) -> None:
    (before,) = rows_of(snapshot, LIMIT)
    with low_memory():
        (inside,) = rows_of(snapshot, LIMIT)
        assert inside["held"] == "61.0 MiB"  # 64 million bytes
        assert Path(inside["folder"]).is_dir()
        assert stats(snapshot).yields
    assert not Path(inside["folder"]).exists()
    assert rows_of(snapshot, LIMIT) == [before]


def test_what_does_not_fit_is_asked_again_without_a_limit(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_LITTLE", "4MB")
    many = "SELECT len(list(i)) AS n FROM range(2_000_000) AS t(i)"  # 16 MB, in one value
    with low_memory(), open_snapshot(snapshot) as connection:
        assert rows.rows_in(connection, many) == [{"n": 2_000_000}]
        assert rows.rows_in(connection, LIMIT)[0]["held"] != "3.8 MiB"


def test_whoever_sets_a_limit_keeps_it(snapshot: Path) -> None:
    with open_snapshot(snapshot) as connection:
        connection.execute("SET memory_limit = '4MB'")
        with pytest.raises(SnapshotError, match="Out of Memory"):
            rows.rows_in(connection, "SELECT len(list(i)) AS n FROM range(2_000_000) AS t(i)")
