"""Queries in little memory: the same rows under a limit, and more memory where a limit would fail them."""

from pathlib import Path

import pytest
from wh_fixtures import make_run, put, scored, snapshot_of

from warehouse.errors import SnapshotError
from warehouse.queries import rows, stats
from warehouse.queries.rows import in_little_memory, open_snapshot, rows_of
from warehouse.store import Store

LIMIT = "SELECT current_setting('memory_limit') AS held, current_setting('temp_directory') AS folder"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    store = Store(tmp_path)
    commit = put(store, "score", "qa", "s0", [scored("d0", "qa", 0, 1.0)])
    store.write_run(make_run("r0", [commit.key]))
    return snapshot_of(store)


def test_the_limit_holds_inside_the_block_alone(snapshot: Path) -> None:
    (before,) = rows_of(snapshot, LIMIT)
    with in_little_memory():
        (inside,) = rows_of(snapshot, LIMIT)
        assert inside["held"] == "61.0 MiB"  # 64 million bytes
        assert Path(inside["folder"]).is_dir()
        assert stats(snapshot).yields
    assert not Path(inside["folder"]).exists()
    assert rows_of(snapshot, LIMIT) == [before]


def test_what_does_not_fit_is_asked_again_without_a_limit(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_LITTLE", "4MB")
    many = "SELECT len(list(i)) AS n FROM range(2_000_000) AS t(i)"  # 16 MB, in one value
    with in_little_memory(), open_snapshot(snapshot) as connection:
        assert rows.rows_in(connection, many) == [{"n": 2_000_000}]
        assert rows.rows_in(connection, LIMIT)[0]["held"] != "3.8 MiB"


def test_whoever_sets_a_limit_keeps_it(snapshot: Path) -> None:
    with open_snapshot(snapshot) as connection:
        connection.execute("SET memory_limit = '4MB'")
        with pytest.raises(SnapshotError, match="Out of Memory"):
            rows.rows_in(connection, "SELECT len(list(i)) AS n FROM range(2_000_000) AS t(i)")
