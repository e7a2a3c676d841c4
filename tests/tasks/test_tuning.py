"""How a process shares cores: its threads spin less where others run when it begins."""

from __future__ import annotations

import os

import pytest

from tasks.tuning import spin_count


@pytest.mark.parametrize(("load", "spins"), [(0.0, 20_000), (0.5, 20_000), (0.6, 2_000), (15.0, 2_000)])
def test_threads_spin_less_beside_other_work(load: float, spins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert spin_count() == spins
