"""Queries on the published snapshot that return plain rows; here those that most callers ask.

Readers open the snapshot read-only: one that is published later is another file under the same name. Every query raises
`SnapshotError` if there is no snapshot, or if data that it refers to is gone.
"""

from warehouse.queries.builds import Yield, current_build, stats, yield_by_threshold
from warehouse.queries.calls import CallInContext, best_calls, gain_histogram
from warehouse.queries.rows import rows_of

__all__ = [
    "CallInContext",
    "Yield",
    "best_calls",
    "current_build",
    "gain_histogram",
    "rows_of",
    "stats",
    "yield_by_threshold",
]
