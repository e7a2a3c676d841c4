"""What a command has resolved for the flow that it starts, so that tools are built and servers are queried once."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

from flows.runtime.context import using

P = TypeVar("P")
S = TypeVar("S")

_resolved: ContextVar[tuple[tuple[Any, Any], ...]] = ContextVar("resolved", default=())


def use_resolved(*pairs: tuple[P, S | None]) -> AbstractContextManager[None]:
    """Have the flows that are called inside this block find what their parameters resolve to; None: they do so."""
    return using(_resolved, (*_resolved.get(), *pairs))


def resolved(parameters: P, resolve: Callable[[P], S]) -> S:
    """Return what a flow's parameters resolve to: as its caller found, else (another process) as `resolve` does."""
    known = (spec for given, spec in _resolved.get() if spec is not None and given == parameters)
    spec: S | None = next(known, None)
    return resolve(parameters) if spec is None else spec
