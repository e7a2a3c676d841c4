"""How many shards a task of a build takes: tens of seconds of work, but no more tasks than a run can bear.

A task costs Prefect some milliseconds in a thread and a fifth of a second on Dask: one for each stage, tool and shard
would cost more than a small shard takes. Commits and progress stay per shard, whatever the groups are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cutting import cut_evenly
from warehouse.errors import WarehouseError

if TYPE_CHECKING:
    from tasks.stage import Shard

_TASK_S = 20.0  # seconds of work that a task is to take
_UNKNOWN_S = 0.05  # seconds a document, where no past run says
_PER_WORKER = 6  # groups for each task that runs at a time, so that some sample while others execute

_PAST = """
SELECT max(s.seconds / s.documents) AS seconds FROM (
    SELECT c.stage, sum(c.seconds) AS seconds, max(d.documents) AS documents
    FROM facts.commits AS c JOIN facts.current USING (commit_id)
    JOIN (SELECT c.tool, sum(b.rows) AS documents FROM facts.commits AS c JOIN facts.current USING (commit_id)
          JOIN facts.balances AS b USING (commit_id)
          WHERE c.stage = 'prefilter' AND b.kind = 'in' GROUP BY c.tool) AS d USING (tool)
    GROUP BY c.stage, c.tool
) AS s WHERE s.documents > 0"""


def seconds_per_document(snapshot: Path) -> float:
    """Return what the slowest stage took a document, in the builds that a snapshot speaks of; 0.05 s without any."""
    if not snapshot.is_file():
        return _UNKNOWN_S
    from warehouse.queries import rows_of

    try:
        return float(rows_of(snapshot, _PAST)[0]["seconds"] or _UNKNOWN_S)
    except WarehouseError:
        return _UNKNOWN_S  # it only decides how the work is cut


def shard_groups(
    shards: Sequence[Shard], seconds: float, *, at_once: int, tasks_a_group: int, tasks_at_most: int
) -> list[tuple[Shard, ...]]:
    """Cut shards, in order, into groups of one size, give or take one.

    Args:
        shards: of the corpus.
        seconds: of work a document, in the slowest stage.
        at_once: tasks that run at a time; there are at least six groups for each, as far as there are shards.
        tasks_a_group: tasks that each group has, over all stages and tools.
        tasks_at_most: in all; this wins over all else.
    """
    work_s = sum(shard.documents.rows for shard in shards) * seconds
    count = group_count(len(shards), work_s, at_once=at_once, tasks_a_group=tasks_a_group, tasks_at_most=tasks_at_most)
    return cut_evenly(shards, count)


def group_count(shards: int, work_s: float, *, at_once: int, tasks_a_group: int, tasks_at_most: int) -> int:
    """Return into how many groups `shard_groups` cuts so many shards.

    Args:
        shards: of the corpus.
        work_s: seconds of work on all of them, in the slowest stage.
        at_once: see `shard_groups`.
        tasks_a_group: see `shard_groups`.
        tasks_at_most: see `shard_groups`.
    """
    wanted = max(math.ceil(work_s / _TASK_S), _PER_WORKER * at_once)
    return max(1, min(shards, wanted, tasks_at_most // tasks_a_group))
