"""Paths of any name in the notations of others."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from wh_fixtures import make_commit

from tests.strategies import folder_names
from warehouse.catalog import Catalog
from warehouse.errors import CatalogError
from warehouse.files.paths import database_problem, sqlite_file, sqlite_url


@given(folder_names.filter(lambda name: not database_problem(name)))
def test_all_who_read_the_url_find_the_file(name: str) -> None:
    file = Path("/data", name, "x.db")
    url = sqlite_url(file)
    assert sqlite_file(url) == file
    assert sa.make_url(url).database == str(file)
    assert Path(url.removeprefix("sqlite:///")).parent == file.parent  # MLflow creates this folder


def test_urls_of_other_databases_name_no_file() -> None:
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
