"""Queries on the published snapshot that return plain rows; here those that most callers ask.

Readers open the snapshot read-only: one that is published later is another file under the same name. Every query raises
`SnapshotError` if there is no snapshot, or if data that it refers to is gone.
"""

from warehouse.queries.builds import Yield, current_build, stats, yield_by_threshold
from warehouse.queries.calls import Sample, gain_histogram, samples
from warehouse.queries.rows import rows_of

__all__ = ["Sample", "Yield", "current_build", "gain_histogram", "rows_of", "samples", "stats", "yield_by_threshold"]
