"""The annotation of a build that stops when it has enough examples: which tasks are submitted, and which are used.

As many shards are under way as tasks run at once, so when a tool has enough, some shards beyond its last one may have
been begun. They are not used: no run lists them, nothing is assembled from them, and `gc` removes them. What is used is
said in `tasks.filling`, and does not depend on how many tasks run, or when they end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from prefect.futures import PrefectFuture

from flows.ledger import Ledger
from flows.runners import model_resources, taking, tasks_at_once
from tasks.filling import Filling, examples_of, shard_order
from tasks.settings import shared_catalog
from tasks.shards import Done
from tasks.spec import BuildSpec
from tasks.stages import annotate_shards
from tasks.works import Assembly, Shard
from toolformer_core.records import digest_of

__all__ = ["annotate_until_full"]

_STAGES = ("prefilter", "sample", "execute", "score")


def annotate_until_full(
    spec: BuildSpec, assembly: Assembly, ledger: Ledger, shards: Sequence[Shard], workers: int
) -> dict[str, dict[str, tuple[Done, ...]]]:
    """Annotate each tool's shards until it has enough examples; return shard -> tool -> its four stages.

    Args:
        assembly: by whose rules examples are counted.
        ledger: counts the shards that are used; at the start it expects all of them.
        workers: tasks at a time, where they run in threads.
    """
    order = shard_order(shards, spec.assemble.seed)
    filling = Filling(spec.tools, spec.assemble.max_examples)
    resources, at_once = model_resources(), tasks_at_once(workers)
    futures: dict[tuple[str, str], PrefectFuture[Any]] = {}
    used: dict[str, dict[str, tuple[Done, ...]]] = {shard.name: {} for shard in shards}
    for index, shard in enumerate(order):
        if not filling.open:
            break
        ahead = math.ceil(at_once / len(filling.open))
        for later in _begun(order[index:], ahead, spec.run_id):
            for tool in filling.open:
                if (tool, later.name) not in futures:
                    with taking(resources):
                        future: Any = annotate_shards.submit(spec, tool, [later])
                    futures[tool, later.name] = future
        for tool in filling.open:
            (stages,) = futures.pop((tool, shard.name)).result()
            used[shard.name][tool] = stages
            for done in stages:
                ledger.add(done)
        for _ in filling.add(examples_of(assembly, [stages[-1] for stages in used[shard.name].values()])):
            for stage in _STAGES:
                ledger.expect(stage, index + 1 - len(order))
    for future in futures.values():  # not used, whatever becomes of them
        future.wait()
    return used


def _begun(order: Sequence[Shard], ahead: int, run_id: str) -> list[Shard]:
    """Return the shards to be under way, in the order in which they are begun.

    Flows that share them look twice as far ahead and begin at different ones, so that they do not wait for each other.
    """
    if shared_catalog() is None:
        return list(order[:ahead])
    return sorted(order[: 2 * ahead], key=lambda shard: digest_of(run_id, shard.name))
