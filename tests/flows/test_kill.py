"""A build killed and started again ends with the bytes of one that was left alone; `make chaos` does it at length."""

from __future__ import annotations

from pathlib import Path

from benchmarks.chaos import run


def test_two_kills_change_nothing(tmp_path: Path) -> None:
    report = run(tmp_path, kills=2, documents=12, seed=1)
    assert report.kills == 2
    assert report.examples > 0
    assert report.identical
    assert report.conserved
    assert report.shards_counted_twice == 0
