"""Who may read what the warehouse writes: data anybody, databases and records of runs their owner, or a group."""

import os
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from wh_fixtures import put, scored

from warehouse.catalog import Catalog
from warehouse.commits import Run
from warehouse.files.folders import make_private
from warehouse.shared import without_secrets
from warehouse.snapshot.publish import publish
from warehouse.store import Store


@pytest.fixture(autouse=True)
def usual_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(file: Path) -> str:
    return oct(stat.S_IMODE(file.stat().st_mode))


@pytest.mark.parametrize(("shared", "private"), [(False, ("0o600", "0o400")), (True, ("0o660", "0o440"))])
def test_databases_and_records_of_runs_are_their_owners(tmp_path: Path, shared: bool, private: tuple[str, str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o2775 if shared else 0o755)  # with g+s what is made there is meant for the group
    store = Store(data)
    commit = put(store, "score", "qa", "s0", [scored("d", "qa", 1, 2.0)])
    store.write_run(Run("r1", "build-dataset", "2024", None, "running", {}, corpus="c", model="m"))
    with Catalog(data / "catalog.duckdb", store=store) as catalog:
        # DuckDB keeps what was written last beside its file until it is closed
        assert {mode(file) for file in data.glob("catalog.duckdb*") if file.suffix != ".lock"} == {private[0]}
        snapshot = publish(store, catalog)
    assert mode(data / "runs/r1.json") == oct(int(private[0], 8) & ~0o022)
    assert mode(snapshot) == private[1]
    assert mode(data / commit.files[0].path) == "0o644"


def test_a_databases_url_is_shown_without_its_passwords() -> None:
    url = sa.make_url("postgresql+psycopg://me:secret@db/x?password=secret2&sslmode=require&sslpassword=secret3")
    assert without_secrets(url) == "postgresql+psycopg://me:***@db/x?sslmode=require"


def test_a_file_of_an_older_version_is_made_private(tmp_path: Path) -> None:
    old, new = tmp_path / "old.log", tmp_path / "new.log"
    old.write_text("kept")
    old.chmod(0o644)
    make_private(old, new)
    assert (mode(old), mode(new), old.read_text()) == ("0o600", "0o600", "kept")
    make_private(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
