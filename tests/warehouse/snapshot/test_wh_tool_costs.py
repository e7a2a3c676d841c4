"""The view `tool_costs`: counters of several shards added up, percentiles from classes of durations, old commits."""

from dataclasses import asdict
from typing import Any

import pytest
from wh_fixtures import make_run, put, snapshot_of

from warehouse.commits import Commit, RowCounts
from warehouse.queries import rows_of, stats
from warehouse.store import Store


def executed(store: Store, tool: str, shard: str, kept: int, failed: dict[str, int], **counters: Any) -> Commit:
    balance = RowCounts("calls", kept + sum(failed.values()), kept, failed=failed)
    return put(store, "execute", tool, shard, [], balances=(balance,), counters=counters, host=f"host-{shard}")


def test_counters_add_up_and_percentiles_are_interpolated(store: Store) -> None:
    """Two shards of one tool, one shard of an earlier version's, and a shard of a run that is not current."""
    first = {"cache_hits": 5, "transient": 2, "requested": 6, "calls": 9, "tool_seconds": 1.5, "tool_cost": 0.9}
    second = {"cache_hits": 0, "transient": 0, "requested": 4, "calls": 4, "tool_seconds": 1.1, "tool_cost": 0.4}
    commits = [
        executed(store, "qa", "s0", 7, {"timeout": 2, "no_result": 2}, **first, ms_1=1, ms_128=8),
        executed(store, "qa", "s1", 4, {}, **second, ms_128=2, ms_256=1, ms_1024=1),
        executed(store, "mt", "s0", 3, {"crashed": 1}, cache_hits=1, answered=100.0),
    ]
    executed(store, "qa", "s9", 50, {}, requested=50, calls=50, transient=0, ms_1=50)
    store.write_run(make_run("r1", [commit.key for commit in commits]))
    path = snapshot_of(store)
    rows = rows_of(path, "SELECT * FROM tool_costs")
    assert list(map(asdict, stats(path).tools)) == rows
    costs = {row.pop("tool"): row for row in rows}
    qa = costs["qa"]
    assert {name: qa[name] for name in qa if not name.startswith("p")} == {
        "shards": 2,
        "hosts": 2,
        "questions": 15,  # 7 + 2 + 2, and 4
        "answered": 11,
        "failed_transient": 2,
        "failed_lasting": 2,  # 4 - 2, and 0
        "from_cache": 5,
        "requested": 10,
        "calls": 13,
        "retries": 3,
        "seconds": pytest.approx(2.6),
        "mean_ms": pytest.approx(200.0),  # 2,600 ms / 13
        "cost": pytest.approx(1.3),
    }
    # of 13 calls 1 is in (0, 1] ms, 10 in (64, 128], 1 in (128, 256], 1 in (512, 1024]
    assert qa["p50_ms"] == pytest.approx(64 + 64 * (6.5 - 1) / 10)  # the 6.5th call: 99.2
    assert qa["p95_ms"] == pytest.approx(512 + 512 * (12.35 - 12) / 1)  # the 12.35th: 691.2
    assert qa["p99_ms"] == pytest.approx(512 + 512 * (12.87 - 12) / 1)
    # what an earlier version did not count is null
    counted = {"shards": 1, "hosts": 1, "questions": 4, "answered": 3, "from_cache": 1}
    assert costs["mt"] == {**dict.fromkeys(costs["qa"]), **counted}
