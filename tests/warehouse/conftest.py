"""What most tests of the warehouse begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from warehouse.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty data folder."""
    return Store(tmp_path)
