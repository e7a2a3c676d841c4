"""The programs of `toolformer up`, as they are described: nothing is started."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ops.addresses import Addresses
from ops.services import Services


def test_flows_know_the_viewer_that_up_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLFORMER_VIEWER", raising=False)
    own = "http://127.0.0.1:8001"
    addresses = Addresses(*("http://p", "http://p/api", "http://m", "w", "l"), pid=1, seconds=math.nan, viewer=own)
    services = Services(addresses, tmp_path, tmp_path, str(tmp_path), 1.0)
    assert services.worker("cpu").variables["TOOLFORMER_VIEWER"] == own
    monkeypatch.setenv("TOOLFORMER_VIEWER", "https://view.example")  # behind a proxy
    assert services.worker("cpu").variables["TOOLFORMER_VIEWER"] == "https://view.example"
