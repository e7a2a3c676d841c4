"""Progress in words, and when a log gets a line of it: shared by the display and by Prefect's pages.

Where nobody sees a bar a line is due when a stage begins, when another quarter of its shards is finished, and when a
minute has gone by without one. It prints nothing itself, and knows neither consoles nor Prefect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tasks.models import tokens_of_resident
from tasks.shards import AtWork, Done, at_work

__all__ = ["LINE_S", "Lines", "Pulse", "Stage", "duration", "passes_quarter"]

LINE_S = 60.0  # seconds without a line after which one is due
_LOOK_S = 1.0  # between two looks at whether one is


@dataclass(slots=True)
class Stage:
    """How far a stage is."""

    finished: int = 0  # shards
    skipped: int = 0  # of these, found done
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)  # unit -> in, kept

    def note(self, done: Done) -> None:
        """Count one more shard."""
        self.finished += 1
        self.skipped += done.skipped
        for balance in done.balances:
            rows_in, kept = self.rows.get(balance.unit, (0, 0))
            self.rows[balance.unit] = (rows_in + balance.rows_in, kept + balance.kept)

    def told(self, shards: int, elapsed_s: float) -> str:
        """Return a line on shards, rows and the time left.

        Args:
            shards: in all.
            elapsed_s: seconds since the stage began.
        """
        parts = [
            f"{self.finished:,} of {shards:,} shards" + (f" ({self.skipped:,} found done)" if self.skipped else "")
        ]
        parts += [f"{rows_in:,} {unit}, {kept:,} kept" for unit, (rows_in, kept) in self.rows.items()]
        worked = self.finished - self.skipped
        if worked and elapsed_s and self.finished < shards:
            parts.append(f"{duration(elapsed_s / worked * (shards - self.finished))} left")
        return "; ".join(parts)


def duration(seconds: float) -> str:
    """Return a time as a person says it: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def passes_quarter(before: int, finished: int, total: int) -> bool:
    """Return whether a quarter of all shards lies between two counts, or their end."""
    return finished * 4 // max(1, total) > before * 4 // max(1, total)


class Pulse:
    """What this process is at, for a line that is due though no shard has finished.

    Args:
        running: the shards under way here, those begun first first; none where other processes do them.
        tokens: that have passed through this process's model so far.
        clock: seconds that only grow, the same as that of `AtWork.begun`.
    """

    def __init__(
        self,
        running: Callable[[], Sequence[AtWork]] = at_work,
        tokens: Callable[[], int] = tokens_of_resident,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._running = running
        self._tokens = tokens
        self._clock = clock
        self._seen = (clock(), tokens())

    def stages(self) -> list[AtWork]:
        """Return of every stage under way the shard that was begun first."""
        first: dict[str, AtWork] = {}
        for one in self._running():
            first.setdefault(one.stage, one)
        return list(first.values())

    def told(self) -> str:
        """Return which shard has been under way longest, and how many tokens have passed since this was asked last."""
        now, tokens = self._clock(), self._tokens()
        (then, before), self._seen = self._seen, (now, tokens)
        if not (running := self._running()):
            return ""
        more = f" ({len(running) - 1} more)" if len(running) > 1 else ""
        told = f"at work: {running[0]} for {duration(now - running[0].begun)}{more}"
        # Fewer than before: another model has taken this one's place.
        return f"{told}, {tokens - before:,} tokens in {duration(now - then)}" if tokens > before else told


class Lines:
    """Lines of progress, and a thread that says one when it is due; none after `close`.

    Whoever changes what `told` reads holds `turn` meanwhile.

    Args:
        say: is given each line.
        told: returns the lines there are, from the thread, every second; told whether one is due.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        told: Callable[[bool], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._told = told
        self._clock = clock
        self._last = clock()
        self._ended = threading.Event()
        self.turn = threading.RLock()  # a signal's handler may close them while its own thread says one
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def say(self, line: str) -> None:
        """Say a line now."""
        with self.turn:
            if not self._ended.is_set():
                self._last = self._clock()
                self._say(line)

    def look(self) -> None:
        """Say what there is to say."""
        with self.turn:
            for line in self._told(self._clock() - self._last >= LINE_S):
                self.say(line)

    def start(self) -> None:
        """Look every second until closed; the thread does not keep the process alive."""
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with suppress(OSError):  # nobody reads them any more, or the disk of a log is full: the work goes on
                self.look()

    def close(self) -> None:
        """Say nothing from here on. It does not join the thread: called from a signal handler, that could deadlock."""
        with self.turn:
            self._ended.set()
