"""Waiting for what comes about by itself."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def soon(
    what: Callable[[], T | None],
    seconds: float = 300.0,
    every_s: float = 0.1,
    otherwise: Callable[[], str] = lambda: "it did not happen in time",
) -> T:
    """Ask until there is an answer."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, otherwise()
        time.sleep(every_s)
    return answer
