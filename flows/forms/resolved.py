"""What a command has resolved for the flow that it starts, so that tools are built and servers are queried once.

A flow that Prefect starts in another process finds nothing here, and resolves its parameters itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

P = TypeVar("P")
S = TypeVar("S")

_resolved: ContextVar[tuple[tuple[Any, Any], ...]] = ContextVar("resolved", default=())


@contextmanager
def use_resolved(*pairs: tuple[P, S | None]) -> Iterator[None]:
    """Have the flows that are called inside this block find what their parameters resolve to; None: they do so."""
    token = _resolved.set((*_resolved.get(), *pairs))
    try:
        yield
    finally:
        _resolved.reset(token)


def resolved(parameters: P, resolve: Callable[[P], S]) -> S:
    """Return what a flow's parameters resolve to: as the flow's caller has found it, else as `resolve` does."""
    known = (spec for given, spec in _resolved.get() if spec is not None and given == parameters)
    spec: S | None = next(known, None)
    return resolve(parameters) if spec is None else spec
