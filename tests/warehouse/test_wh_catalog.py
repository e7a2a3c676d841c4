"""The catalog, on DuckDB and PostgreSQL: an idempotent index, rebuilt from the commits alone, for several writers."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from wh_fixtures import make_commit, make_run, program, put, put_dataset, scored

from tests.support.postgres import asked, schema
from warehouse.catalog import Catalog
from warehouse.commits import DataFile, Dataset, RowCounts
from warehouse.errors import CatalogError, LockHeldError
from warehouse.facts import Facts
from warehouse.queries import rows_of
from warehouse.snapshot.publish import publish
from warehouse.store import Store

FILE = DataFile("shards/score/qa/s0.parquet", "d1", 3, 9)


@pytest.fixture(params=["duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    if request.param == "duckdb":
        return tmp_path / "catalog.duckdb"
    return str(request.getfixturevalue("postgres"))


def rows(facts: Facts) -> dict[str, list[str]]:
    return {name: sorted(map(repr, table.to_pylist())) for name, table in facts.items()}


def test_recording_twice_is_recording_once(place: Path | str) -> None:
    one = make_commit("score", "qa", "s0", [FILE], balances=[RowCounts("calls", 5, 3, {"x": 1}, {"timeout": 1})])
    two = make_commit("score", "mt", "s0", [FILE], inputs=("d0",))
    with Catalog(place) as catalog:
        catalog.record([one])
        before = rows(catalog.facts_of())
        catalog.record([one, one])
        assert rows(catalog.facts_of()) == before
        catalog.record([dataclasses.replace(one, seconds=7.0), two])
        after = catalog.facts_of()
    assert sorted(after["commits"].column("seconds").to_pylist()) == [1.5, 7.0]
    # qa: in, kept, dropped x, failed timeout; mt: in, kept
    assert after["balances"].num_rows == 4 + 2
    assert after["files"].num_rows == 2
    assert after["commit_parts"].num_rows == 4
    assert after["commit_inputs"].to_pylist() == [{"commit_id": two.id, "digest": "d0"}]
    with Catalog(place) as catalog:  # it is on disk
        assert catalog.facts_of()["commits"].num_rows == 2


def test_runs_and_datasets_are_replaced_by_their_names(place: Path | str) -> None:
    commit = make_commit("score", "qa", "s0")
    dataset = Dataset("c", "v1", (FILE,), {"qa": 1}, {"qa": 1.0}, "r", "m", "c", "2024")
    with Catalog(place) as catalog:
        catalog.record(runs=[make_run("r", [], state="running")])
        catalog.record(runs=[make_run("r", [commit.key, commit.key])])
        catalog.record(runs=[make_run("s", [commit.key])])
        for licence in ("", "CC0"):
            catalog.record(datasets=[dataclasses.replace(dataset, licence=licence)])
        facts = catalog.facts_of()
    assert sorted(facts["runs"].column("state").to_pylist()) == ["completed", "completed"]
    assert facts["run_commits"].num_rows == 2
    assert facts["datasets"].column("licence").to_pylist() == ["CC0"]
    assert facts["dataset_files"].num_rows == 1


def test_a_duckdb_url_is_locked_like_a_path(tmp_path: Path) -> None:
    path = tmp_path / "catalog.duckdb"
    with Catalog(path), pytest.raises(LockHeldError):
        Catalog(f"duckdb:///{path}")


OTHERS = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"


def filled(store: Store) -> None:
    counts = [RowCounts("calls", 2, 1, {"x": 1})]
    commits = [
        put(store, "score", tool, f"s{n}", [scored(f"d{n}", tool, 0, 1.0)], balances=counts)
        for tool in ("qa", "mt")
        for n in range(3)
    ]
    store.write_run(make_run("r", [commit.key for commit in commits]))
    put_dataset(store, "c", commits[:1], "r", counts={"qa": 1}, thresholds={"qa": 1.0})


def test_it_holds_what_a_catalog_on_duckdb_holds(postgres: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    filled(store)
    with Catalog(postgres, store=store) as shared, Catalog(tmp_path / "c.duckdb", store=store) as own:
        assert rows(shared.facts_of()) == rows(own.facts_of())
        assert shared.facts_of()["commits"].num_rows == 6
        assert all(table.schema == own.facts_of()[name].schema for name, table in shared.facts_of().items())
        shared.reconcile(store)
        own.reconcile(store)
        assert rows(shared.facts_of()) == rows(own.facts_of())
        sql = "SELECT tool, tau_f, examples, calls FROM yield_by_threshold ORDER BY ALL"
        one, other = (rows_of(publish(store, catalog, anew=True), sql) for catalog in (shared, own))
    assert one == other != []


def test_a_transaction_that_the_server_cuts_begins_again(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cuts: list[object] = []
    with Catalog(postgres, store=Store(tmp_path)) as catalog:
        insert = catalog._insert

        def insert_and_cut_once(*arguments: Any) -> None:
            insert(*arguments)
            if not cuts:
                cuts.extend(asked(postgres, f"SELECT pg_terminate_backend(pid) {OTHERS}"))

        monkeypatch.setattr(catalog, "_insert", insert_and_cut_once)
        catalog.record([make_commit("score", "qa", "s0", [FILE])])
        assert catalog.facts_of()["commits"].num_rows == 1
    assert len(cuts) == 1
    assert "it is tried again" in caplog.text


def test_data_folders_that_share_a_database_do_not_see_each_other(postgres: str, tmp_path: Path) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    filled(here)
    with Catalog(postgres, store=here) as one, Catalog(postgres, store=there) as other:
        assert one.facts_of()["commits"].num_rows == 6
        assert other.facts_of()["commits"].num_rows == 0
        other.reconcile(there)
        assert one.facts_of()["commits"].num_rows == 6


WRITE = """
import sys
from wh_fixtures import make_commit
from warehouse.catalog import Catalog
from warehouse.store import Store
with Catalog(sys.argv[1], store=Store(sys.argv[2])) as catalog:
    print("open", flush=True)
    sys.stdin.readline()
    for n in range(40):
        catalog.record([make_commit("score", "qa", f"{sys.argv[3]}-{n}"), make_commit("score", "mt", f"both-{n}")])
"""


def test_processes_that_write_at_once_lose_nothing(postgres: str, tmp_path: Path) -> None:
    with program(WRITE, postgres, tmp_path, "a") as one, program(WRITE, postgres, tmp_path, "b") as other:
        for writer in (one, other):
            writer.stdin.write("go\n")
            writer.stdin.flush()
        assert [writer.wait() for writer in (one, other)] == [0, 0]
    found = asked(postgres, f"SELECT shard FROM {schema(tmp_path)}.commits")
    # forty of each writer's own, and forty that both wrote: once each
    assert sorted(shard for (shard,) in found) == sorted(f"{who}-{n}" for who in ("a", "b", "both") for n in range(40))
    assert len(asked(postgres, f"SELECT * FROM {schema(tmp_path)}.commit_parts")) == 120 * 2


def test_a_server_that_is_not_there_is_said_in_one_line_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as caught:
        Catalog("postgresql+psycopg://me:secret@127.0.0.1:1/none", store=Store(tmp_path))
    with pytest.raises(CatalogError, match="not a catalog's URL"):
        Catalog("nosuchdatabase://user:secret@place/x")
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
