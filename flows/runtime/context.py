"""Values that hold for what is called inside a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def using(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Have a context variable hold a value while this block runs."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
