"""How a process shares cores: its threads spin less where the machine is busy when it begins."""

from __future__ import annotations

import os

import pytest

from tasks.tuning import spin_count


@pytest.mark.parametrize(
    ("load", "cores", "spins"),
    [(0.0, 2, 20_000), (4.0, 2, 20_000), (4.1, 2, 2_000), (4.1, 4, 20_000), (15.0, 2, 2_000)],  # more than 2 a core
)
def test_threads_spin_less_on_a_busy_machine(
    load: float, cores: int, spins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert spin_count() == spins
