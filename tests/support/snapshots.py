"""First snapshots begin as a copy of one of nothing: creating its tables, views and comments takes half a second."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from warehouse.catalog import Catalog
from warehouse.snapshot import publish as publishing
from warehouse.store import Store


@pytest.fixture(scope="session", autouse=True)
def begin_with_a_copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give a data folder without a snapshot one of nothing to begin with; `anew` is from nothing as before."""
    write = publishing._write

    @cache
    def of_nothing() -> Path:
        folder = tmp_path_factory.mktemp("nothing")
        with Catalog(folder / "catalog.duckdb") as catalog:
            return publishing.publish(Store(folder), catalog, anew=True)

    def begun(temporary: Path, store: Store, catalog: Catalog, last: Path | None, *rest: Any) -> None:
        write(temporary, store, catalog, of_nothing() if last is not None and not last.exists() else last, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "_write", begun)
        yield
