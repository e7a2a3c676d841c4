"""Queries on the published snapshot that return plain rows: row counts, yields, calls, figures of evaluations.

Readers open the snapshot read-only, for one query or for hours: a newly published snapshot is another file under the
same name, which the next opening sees. Every query raises `SnapshotError` if there is no snapshot, or if data that it
refers to is gone.
"""

from warehouse.queries.builds import (
    CurrentBuild,
    KeptCalls,
    StageBalance,
    Stats,
    ToolCosts,
    Yield,
    coverage,
    current_build,
    kept_calls,
    stats,
    yield_by_threshold,
)
from warehouse.queries.calls import (
    GainBin,
    Link,
    Sample,
    calls_of_documents,
    gain_histogram,
    nearest_call,
    samples,
    tool_names,
)
from warehouse.queries.evaluations import accuracies, call_counts, evaluation_limits, perplexities
from warehouse.queries.rows import in_little_memory, open_snapshot, rows_in, rows_of

__all__ = [
    "CurrentBuild",
    "GainBin",
    "KeptCalls",
    "Link",
    "Sample",
    "StageBalance",
    "Stats",
    "ToolCosts",
    "Yield",
    "accuracies",
    "call_counts",
    "calls_of_documents",
    "coverage",
    "current_build",
    "evaluation_limits",
    "gain_histogram",
    "in_little_memory",
    "kept_calls",
    "nearest_call",
    "open_snapshot",
    "perplexities",
    "rows_in",
    "rows_of",
    "samples",
    "stats",
    "tool_names",
    "yield_by_threshold",
]
