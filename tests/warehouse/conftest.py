"""What most tests of the warehouse begin with."""

from pathlib import Path

import pytest

from warehouse.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)
