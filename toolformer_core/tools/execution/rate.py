"""When a call may begin, if a tool may be asked only so often: a sliding window, kept by pyrate-limiter's bucket.

It never waits: it says how long to wait, by the time that it is told. Whoever asks it holds the pool's lock.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from toolformer_core.errors import UsageError

if TYPE_CHECKING:
    from pyrate_limiter import InMemoryBucket


class RateLimit:
    """At most so many calls a second: n calls in any interval of n / `per_second` seconds, n the whole part of it.

    Args:
        per_second: None: any number. Below 1, e.g. 0.5: one call in any 2 seconds.

    Raises:
        UsageError: pyrate-limiter is not installed.
    """

    def __init__(self, per_second: float | None) -> None:
        self._bucket: InMemoryBucket | None = None
        if per_second is None:
            return
        try:
            from pyrate_limiter import InMemoryBucket, Rate
        except ImportError as exc:
            raise UsageError("a tool with a limit per_second needs pyrate-limiter: pip install pyrate-limiter") from exc
        calls = max(1, math.floor(per_second))
        self._bucket = InMemoryBucket([Rate(calls, math.ceil(1000 * calls / per_second))])

    def take(self, now: float) -> float:
        """Count a call that begins now and return 0; if none may begin, return the seconds until one may.

        Args:
            now: seconds, from a clock that only grows.
        """
        if self._bucket is None:
            return 0.0
        from pyrate_limiter import RateItem

        item = RateItem("call", math.floor(1000 * now))
        self._bucket.leak(item.timestamp)
        if self._bucket.put(item):
            return 0.0
        wait = cast(int, self._bucket.waiting(item))  # only buckets in other processes are awaited
        return max(1, wait) / 1000
