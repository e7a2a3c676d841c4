"""First snapshots begin as a copy of one of nothing: creating its tables, views and comments takes half a second."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from warehouse.snapshot import publish as publishing
from warehouse.store import Store


@pytest.fixture(scope="session", autouse=True)
def begin_with_a_copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give a data folder without a snapshot one of nothing to begin with; `anew` is from nothing as before."""
    write = publishing._write

    @cache
    def of_nothing() -> Path:
        return publishing.publish(Store(tmp_path_factory.mktemp("nothing")), None, anew=True)

    def begun(temporary: Path, store: Store, source: Any, last: Path | None, recheck: bool) -> None:
        write(temporary, store, source, of_nothing() if last is not None and not last.exists() else last, recheck)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "_write", begun)
        yield
