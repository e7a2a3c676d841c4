"""Files that another program has open in DuckDB for writing: who is named, and what is done all the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wh_fixtures import program, put, snapshot_of

from warehouse.catalog import Catalog
from warehouse.errors import LockHeldError, SnapshotError
from warehouse.queries import rows_of
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
