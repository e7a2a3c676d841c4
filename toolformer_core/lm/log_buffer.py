"""Buffers log records while a library tries something, and shows them only if it succeeds.

transformers reports every weight that it did not expect or did not find. After a successful load the report is worth
reading; in front of a one-line error it is dozens of lines to scroll past. This module knows neither models nor the
content of the records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _BufferingFilter(logging.Filter):
    """Keeps the records of the thread that created it; records of other threads pass."""

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
def buffer_logs(logger: logging.Logger) -> Iterator[None]:
    """Delay this thread's records at a logger's handlers until the block ends; drop them if the block raises."""
    filters = [(handler, _BufferingFilter()) for handler in logger.handlers]
    for handler, buffering in filters:
        handler.addFilter(buffering)
    try:
        yield
    finally:
        for handler, buffering in filters:
            handler.removeFilter(buffering)
    for handler, buffering in filters:
        for record in buffering.records:
            handler.handle(record)
