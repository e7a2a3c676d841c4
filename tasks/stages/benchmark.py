"""Benchmark: a benchmark's file, read once into shards of items, with its rejected rows and their lines beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks import arrow
from tasks.evaluation_spec import Benchmark
from tasks.run_shard import ShardResult, ShardWriter, StageOutput
from tasks.stage import Inputs, Shard, Stage
from toolformer_core.config import canonical_json
from toolformer_core.evaluate.items import Item, RejectedRow
from toolformer_core.evaluate.tasks import read, task_named
from warehouse.commits import RowCounts

__all__ = ["BENCHMARK", "benchmark_shards"]

_SAME_FACT = "same_fact"  # a further wording of an example: left out, not broken


def benchmark_shards(result: ShardResult) -> list[Shard]:
    """Return the shards of a benchmark, in order."""
    return [Shard(f"{number:05d}", file) for number, file in enumerate(result.files)]


def _run(inputs: Inputs[Benchmark], writer: ShardWriter) -> StageOutput:
    benchmark = inputs.spec
    task, size = task_named(benchmark.task), benchmark.shard_items
    kept = 0
    batch: list[Item] = []
    rejected: list[RejectedRow] = []

    def write_batch() -> None:
        writer.write(arrow.items_table(batch), f"{task.name}-{(kept - len(batch)) // size:05d}")
        batch.clear()

    for row in read(task, Path(benchmark.path) if benchmark.path else None, benchmark.limit):
        if isinstance(row, RejectedRow):
            rejected.append(row)
            continue
        batch.append(row)
        kept += 1
        if len(batch) == size:
            write_batch()
    if batch:
        write_batch()
    if rejected:
        writer.write_rejects(arrow.rejected_table(rejected))
    reasons = Counter(row.reason for row in rejected)
    same = reasons.pop(_SAME_FACT, 0)
    dropped = {_SAME_FACT: same} if same else {}
    return StageOutput((RowCounts("rows", kept + len(rejected), kept, dropped, dict(sorted(reasons.items()))),))


def _digests(inputs: Inputs[Benchmark]) -> Mapping[str, str]:
    benchmark = inputs.spec
    cut = canonical_json([benchmark.limit, benchmark.shard_items])
    parts = {"source": benchmark.digest, "task": benchmark.task, "cut": cut}
    return parts | ({"order": "files in turn"} if benchmark.in_turn else {})


def _config_notes(inputs: Inputs[Benchmark]) -> Mapping[str, Any]:
    benchmark = inputs.spec
    return {
        "task": benchmark.task,
        "path": benchmark.path or "",
        "limit": benchmark.limit,
        "shard": benchmark.shard_items,
        "evaluation": f"items/{benchmark.task}/{benchmark.source}",
    }


BENCHMARK: Stage[Benchmark] = Stage(
    name="benchmark",
    version="2",
    unit="rows",
    per="source",
    run=_run,
    digests=_digests,
    config_notes=_config_notes,
)
