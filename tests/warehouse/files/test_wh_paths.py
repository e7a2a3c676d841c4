"""Paths of any name in the notations of others, and who may read what lies there."""

import os
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from wh_fixtures import make_commit, put, scored

from tests.strategies import folder_names
from warehouse.catalog import Catalog
from warehouse.commits import Run
from warehouse.errors import CatalogError
from warehouse.files.folders import make_private
from warehouse.files.paths import database_problem, sqlite_file, sqlite_url
from warehouse.shared import without_secrets
from warehouse.snapshot.publish import publish
from warehouse.store import Store


@given(folder_names.filter(lambda name: not database_problem(name)))
def test_all_who_read_the_url_find_the_file(name: str) -> None:
    file = Path("/data", name, "x.db")
    url = sqlite_url(file)
    assert sqlite_file(url) == file
    assert sa.make_url(url).database == str(file)
    assert Path(url.removeprefix("sqlite:///")).parent == file.parent  # MLflow creates this folder
    assert sqlite_file("postgresql://host/x") is None
    assert sqlite_file("sqlite:///x%20y.db?mode=ro") == Path.cwd() / "x%20y.db"


@pytest.mark.parametrize(
    ("path", "holds"),
    [("/d/h?y", "'?'"), ("/d?/x", "'?'"), ("/d/h\\y", r"'\\'"), ("/d/h\ny", r"'\n'"), ("/d/:memory:", "':memory:'")],
)
def test_what_no_database_can_be_called(path: str, holds: str) -> None:
    assert f" holds {holds}, and no database can lie there" in database_problem(path)
    assert "\n" not in database_problem(path)
    assert database_problem("/d/h\udcff") == r"'/d/h\udcff' is not UTF-8: rename it, or choose another path"
    assert database_problem("/d/%20 [x]*'\";#é") == ""


def test_a_catalog_lies_where_its_path_says(tmp_path: Path) -> None:
    for name in ("a b", "a%20b"):
        (tmp_path / name).mkdir()
    with Catalog(tmp_path / "a%20b" / "catalog.duckdb") as catalog:
        catalog.record([make_commit("score", "qa", "s0", [])])
    assert list((tmp_path / "a b").iterdir()) == []
    with pytest.raises(CatalogError, match=r"holds '\?', and no database"):
        Catalog(tmp_path / "h?y" / "catalog.duckdb")
    assert not (tmp_path / "h").exists()
    assert not (tmp_path / "h?y").exists()


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
