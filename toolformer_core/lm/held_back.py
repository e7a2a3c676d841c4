"""What a library logs while it tries something, kept until it is known how that ended.

transformers reports on every weight it did not expect, or did not find, before it is asked whether that matters. Of a
load that succeeds the report is worth reading; before an error that says the same in a line it is dozens of lines to
scroll past. It knows neither models nor what is logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["held_back"]


class _Held(logging.Filter):
    """Keeps the records of the thread that made it, and lets others pass."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()
        self.records: list[logging.LogRecord] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self.thread:
            return True
        self.records.append(record)
        return False


@contextmanager
def held_back(logger: logging.Logger) -> Iterator[None]:
    """Show what reaches a logger's handlers from this thread once the block has ended; nothing, if it raises."""
    held = [(handler, _Held()) for handler in logger.handlers]
    for handler, keeper in held:
        handler.addFilter(keeper)
    try:
        yield
    finally:
        for handler, keeper in held:
            handler.removeFilter(keeper)
    for handler, keeper in held:
        for record in keeper.records:
            handler.handle(record)
