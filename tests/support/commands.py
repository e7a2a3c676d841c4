"""The command line as tests call it: through `main`, in their own process; see the fixture `run`."""

from collections.abc import Callable
from typing import NamedTuple


class Said(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]
