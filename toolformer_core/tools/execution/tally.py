"""What a tool's calls took, in plain numbers that can be added, so that a percentile of many shards is known."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class CallTally:
    """The calls of some questions; a question of a batch counts as a call that took as long as the batch."""

    requested: int = 0  # questions
    calls: int = 0  # a retry is another call
    seconds: float = 0.0  # in the tool; those of a batch are shared by its questions
    cost: float = 0.0  # in the user's unit
    durations: Counter[int] = field(default_factory=Counter)  # upper bound of a class (1, 2, 4, ... ms) -> calls

    def add(self, calls: Sequence[tuple[float, int]], cost: float) -> None:
        """Add a question: of each of its calls the seconds, and how many questions shared it; and a call's cost."""
        self.requested += 1
        self.calls += len(calls)
        self.cost += cost * len(calls)
        for seconds, shared_by in calls:
            self.seconds += seconds / shared_by
            self.durations[2 ** math.ceil(math.log2(max(1000 * seconds, 1.0)))] += 1

    def counters(self) -> dict[str, int | float]:
        """Return the tally as a flat mapping: `requested`, `calls`, `tool_seconds`, `tool_cost`, and `ms_<bound>`."""
        durations = {f"ms_{bound}": calls for bound, calls in sorted(self.durations.items())}
        totals = {"requested": self.requested, "calls": self.calls, "tool_seconds": round(self.seconds, 6)}
        return {**totals, "tool_cost": self.cost, **durations}
