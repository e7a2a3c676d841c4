"""What the rule of `call_filter` says of the index's calls, for SQL to read.

`facts.gains.best`: the call is kept where all thresholds are low enough. `facts.yields`: examples and calls of a tool
in a shard where all tools have one threshold. Equal calls nearby count as every row of `facts.slots` says (`repeats`).
"""

import json
import math
from collections.abc import Iterator, Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolformer_core.annotate.call_filter import CallColumns, CallFilter, Mask
from warehouse.schema import columns

THRESHOLDS = (0.5, 1.0, 2.0)  # nats, as in the paper's Table 2
UNRANKED = np.iinfo(np.int32).max  # the rank of a position whose samples are gone

Tools = tuple[str, ...]  # of a chain in order; a single call has one

YIELDS = columns("shard text?, tool text?, tau_f real?, examples int?, calls int?")


def columns_of(gains: pa.Table, tools: Mapping[int, Tools]) -> CallColumns:
    """Return rows of `facts.gains`, in their order there, as columns that a filter judges; `tools` are by slot."""
    kinds = sorted(set(tools.values()))
    kind_of_slot = np.zeros(max(tools, default=-1) + 1, np.uint16)
    for slot, of_slot in tools.items():
        kind_of_slot[slot] = kinds.index(of_slot)
    window_end = pc.if_else(pc.is_null(gains["alike"]), None, gains["window_end"])
    return CallColumns(
        kinds=kinds,
        kind=kind_of_slot[gains["slot"].to_numpy()],
        doc=gains["doc"].to_numpy(),
        position=gains["position"].to_numpy(),
        gain=gains["gain"].to_numpy(),
        rank=gains["rank"].fill_null(UNRANKED).to_numpy(),
        log_p=gains["log_p"].fill_null(math.nan).to_numpy(),
        alike=gains["alike"].fill_null(0).to_numpy(),
        window_end=window_end.fill_null(-1).to_numpy(),
    )


def filter_of_current(connection: duckdb.DuckDBPyConnection) -> CallFilter:
    """Return the filter of the current C*; without one, the filter that is the default."""
    [(config, tools)] = connection.execute(
        """SELECT any_value(c.config) FILTER (c.stage = 'assemble'), list(DISTINCT c.tool) FILTER (c.stage = 'score')
        FROM facts.commits AS c JOIN facts.current USING (commit_id)"""
    ).fetchall()
    values = json.loads(config or "{}")  # a build leaves no positions out
    settings = {name: values[name] for name in ("tau_f", "keep_repeats") if name in values}
    return CallFilter.of_build(tools or (), settings)


def best(calls: CallColumns, repeats: frozenset[str]) -> Mask:
    """Return the calls that are kept if every threshold is low enough."""
    return calls.kept(CallFilter(dict.fromkeys(_tools(calls), -math.inf), keep_repeats=repeats))


def yields(calls: CallColumns, shard: str, repeats: frozenset[str]) -> Iterator[tuple[str, str, float, int, int]]:
    """Yield the rows of `facts.yields` of a shard."""
    for tau_f in THRESHOLDS:
        kept = calls.kept(CallFilter(dict.fromkeys(_tools(calls), tau_f), keep_repeats=repeats))
        for tool, counts in calls.count(kept).items():
            yield shard, tool, tau_f, *counts


def _tools(calls: CallColumns) -> set[str]:
    return {tools[-1] for tools in calls.kinds}
