"""The circuit breaker: decides when a tool counts as dead, so that a build ends instead of waiting for every call.

Closed, it lets all calls through; open, none for 30 s; then half open, one, whose result closes it or opens it again.
A question fails by transport if its last try timed out or gave a retryable failure; all else is a sign of life. A tool
is dead if 10 questions in a row failed by transport, in the order in which they were put and with no sign of life since
the first of these failures came in (of many calls at a time, those that hang come in together, though others were
answered between them); or if 3 ran out of time at their first try, without a sign of life for `silence_s` seconds.
"""

import itertools
import math
from collections import deque
from typing import Literal

State = Literal["closed", "open", "half open"]
_FAILURES, _TIMEOUTS, _COOL_DOWN_S = 10, 3, 30.0  # see above


class CircuitBreaker:
    """The state of one tool in one process. Times are seconds of one clock, questions go by ascending numbers.

    Its caller holds a lock.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._failed: deque[int] = deque(maxlen=1_000)  # numbers of questions, the last ones
        self._since = 0.0  # the last sign of life, or when the tool was first called after a pause
        self._opened: float | None = None  # when
        self.in_a_row = 0  # questions that failed since the last sign of life
        self.timeouts = 0  # questions that ran out of time at their first try since then
        self.why = ""  # it opened

    def state(self, now: float) -> State:
        if self._opened is None:
            return "closed"
        return "open" if now < self._opened + _COOL_DOWN_S else "half open"

    def seconds_left(self, now: float) -> float:
        """Return the seconds until an open breaker lets a call through."""
        return 0.0 if self._opened is None else max(0.0, self._opened + _COOL_DOWN_S - now)

    def begun(self, now: float, *, others: bool) -> None:
        """Note that a call begins, and whether others are in progress."""
        if not others and not self.timeouts and not self.in_a_row:
            self._since = now

    def answered(self, now: float) -> None:
        """Note a sign of life: the breaker closes."""
        self._since = now
        self._opened = None
        self.in_a_row = self.timeouts = 0

    def timed_out(self, now: float) -> None:
        """Note that a question ran out of time at its first try; `failed` follows unless it is retried."""
        self.timeouts += 1
        if self.timeouts >= _TIMEOUTS and now - self._since >= self._silence_s:
            self._open(now, f"{self.timeouts} questions in a row ran out of time")

    def failed(self, number: int, now: float) -> None:
        """Note that a question failed by transport for good."""
        self.in_a_row += 1
        self._failed.append(number)
        if self._opened is not None:  # the one call that was let through
            self._open(now, self.why)
        elif min(self.in_a_row, self._called_in_a_row(number)) >= _FAILURES:
            self._open(now, f"{self.in_a_row} questions in a row got no answer")

    def _open(self, now: float, why: str) -> None:
        self._opened = now
        self.why = why

    def _called_in_a_row(self, number: int) -> int:
        """Return the length of the row of failed questions around one, in the order in which they were put."""
        before = next(n for n in itertools.count(1) if number - n not in self._failed)
        after = next(n for n in itertools.count(1) if number + n not in self._failed)
        return before + after - 1


class RateLimit:
    """At most n calls in any n / `per_second` seconds, n its whole part and at least 1 (0.5: one in any 2 seconds)."""

    def __init__(self, per_second: float | None) -> None:
        calls = 0 if per_second is None else max(1, math.floor(per_second))
        self._window_s = 0.0 if per_second is None else calls / per_second
        self._begun: deque[float] = deque(maxlen=calls)

    def take(self, now: float) -> float:
        """Count a call that begins now and return 0; if none may begin, return the seconds until one may."""
        full = bool(self._begun) and len(self._begun) == self._begun.maxlen
        if full and (wait := self._begun[0] + self._window_s - now) > 0:
            return max(0.001, wait)  # so that the time moves on
        self._begun.append(now)
        return 0.0
