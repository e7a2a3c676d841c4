"""The catalog is an index: idempotent, exclusive, and rebuilt from the commits alone."""

import dataclasses
from pathlib import Path

import pytest
from wh_fixtures import make_commit, make_run

from warehouse.catalog import Catalog
from warehouse.commits import DataFile, Dataset, RowCounts
from warehouse.errors import CatalogError, LockHeldError
from warehouse.facts import Facts

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


def test_an_unknown_kind_of_database_is_said_so() -> None:
    with pytest.raises(CatalogError, match="not a catalog's URL"):
        Catalog("nosuchdatabase://user:secret@place/x")
