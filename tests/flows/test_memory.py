"""Memory that threads have freed goes back to the system while a flow runs, and at its end."""

from __future__ import annotations

import threading

import pytest

from flows.memory import returning_memory


def test_free_memory_is_given_back_now_and_then_and_at_the_end() -> None:
    times: list[str] = []
    thrice = threading.Event()

    def trim() -> None:
        times.append(threading.current_thread().name)
        if len(times) == 3:
            thrice.set()

    with returning_memory(0.001, trim):
        assert thrice.wait(30)
    assert set(times[:3]) == {"memory"}
    assert times[-1] == threading.current_thread().name
    assert "memory" not in [thread.name for thread in threading.enumerate()]


def test_it_ends_where_the_flow_fails() -> None:
    with pytest.raises(ValueError, match="broken"), returning_memory(3600.0, lambda: None):
        raise ValueError("broken")
    assert "memory" not in [thread.name for thread in threading.enumerate()]


def test_this_machines_own_library_takes_part_or_is_left_alone() -> None:
    with returning_memory(0.001):
        assert bytes(10_000_000)
