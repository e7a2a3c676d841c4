"""What most tests of the warehouse begin with."""

from pathlib import Path

import pytest

from warehouse.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture(params=["s3", "fsspec"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of a local S3 server, and one of a file system that fsspec alone knows."""
    monkeypatch.chdir(tmp_path)
    if request.param == "fsspec":
        return f"memory://{tmp_path.name}/c4"
    return str(request.getfixturevalue("bucket"))
