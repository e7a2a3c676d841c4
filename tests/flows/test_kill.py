"""A build killed and started again ends with the bytes of one that was left alone; `make chaos` does it at length."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from benchmarks.chaos import run


@pytest.mark.parametrize(
    ("runner", "victims", "clean"),
    [
        ("threads", ["flow"], ""),
        pytest.param("threads", ["all", "flow"], "documents", marks=pytest.mark.slow),
        pytest.param("dask", ["all", "flow", "worker"], "calls", marks=pytest.mark.slow),
    ],
)
def test_kills_change_nothing(
    prefect_server: None, tmp_path: Path, runner: str, victims: list[str], clean: str
) -> None:
    server = PREFECT_API_URL.value()
    options = {"kills": len(victims), "documents": 8, "seed": 1, "runner": runner, "victims": victims, "clean": clean}
    report = run(tmp_path, server=server, **options)
    assert report.kills == len(victims)
    assert (report.of_all, report.of_flow, report.of_worker) == tuple(map(victims.count, ("all", "flow", "worker")))
    assert report.examples > 0
    assert report.identical
    assert report.conserved
    assert report.shards_counted_twice == 0
    assert report.damaged == 0
