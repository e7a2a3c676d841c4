"""Lines of progress for the terminal and Prefect's pages: at a stage's begin, at quarters, else once a minute."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tasks.shards.model_thread import tokens_of_resident
from tasks.shards.run_shard import ActiveShard, ShardResult, active_shards

LINE_S = 60.0  # seconds without a line after which one is due


@dataclass(slots=True)
class StageProgress:
    """The progress of one stage."""

    finished: int = 0  # shards
    skipped: int = 0  # of these, done already
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)  # unit -> in, kept

    def note(self, result: ShardResult) -> None:
        self.finished += 1
        self.skipped += result.skipped
        for balance in result.counts:
            rows_in, kept = self.rows.get(balance.unit, (0, 0))
            self.rows[balance.unit] = (rows_in + balance.rows_in, kept + balance.kept)

    def line(self, shards: int, elapsed_s: float) -> str:
        """Return a line on shards, rows and the time left."""
        found = f" ({self.skipped:,} found done)" if self.skipped else ""
        parts = [f"{self.finished:,} of {shards:,} shards{found}"]
        parts += [f"{rows_in:,} {unit}, {kept:,} kept" for unit, (rows_in, kept) in self.rows.items()]
        worked = self.finished - self.skipped
        if worked and elapsed_s >= 1 and self.finished < shards:  # sooner it tells nothing
            parts.append(f"{duration(elapsed_s / worked * (shards - self.finished))} left")
        return "; ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration as people write it: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def passes_quarter(before: int, finished: int, total: int) -> bool:
    """Return whether the step from `before` to `finished` completes another quarter of all shards."""
    return finished * 4 // max(1, total) > before * 4 // max(1, total)


@dataclass(slots=True)
class Pulse:
    """The work under way in this process, for a line that is due although no shard has finished."""

    running: Callable[[], Sequence[ActiveShard]] = active_shards  # oldest first; none where other processes do the work
    tokens: Callable[[], int] = tokens_of_resident  # that have passed through this process's model so far
    clock: Callable[[], float] = time.monotonic
    _seen: tuple[float, int] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = (self.clock(), self.tokens())

    def stages(self) -> list[ActiveShard]:
        """Return the oldest active shard of every stage."""
        first: dict[str, ActiveShard] = {}
        for shard in self.running():
            first.setdefault(shard.stage, shard)
        return list(first.values())

    def line(self) -> str:
        """Return a line on the oldest active shard and the tokens since the last call; "" if no shard is active."""
        now, tokens = self.clock(), self.tokens()
        (then, before), self._seen = self._seen, (now, tokens)
        if not (running := self.running()):
            return ""
        more = f" ({len(running) - 1} more)" if len(running) > 1 else ""
        line = f"at work: {running[0]} for {duration(now - running[0].started)}{more}"
        # Fewer than before: another model has taken this one's place.
        return f"{line}, {tokens - before:,} tokens in {duration(now - then)}" if tokens > before else line
