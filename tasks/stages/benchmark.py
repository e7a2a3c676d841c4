"""Benchmark: a benchmark's file, read once into shards of items, with its rejected rows and their lines beside them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from tasks.shards import arrow
from tasks.shards.run_shard import ShardResult, ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Shard, Stage, nonzero
from tasks.specs.evaluation_spec import Benchmark
from toolformer_core.config import canonical_json
from toolformer_core.evaluate.items import Item, RejectedRow, Task, select_items
from toolformer_core.evaluate.tasks import read, task_named
from warehouse.commits import RowCounts

_SAME_FACT = "same_fact"  # a further wording of an example: left out, not broken
_HELD_OUT, _NOT_CHOSEN = "held_out", "not_chosen"  # of a sample


def benchmark_shards(result: ShardResult) -> list[Shard]:
    return [Shard(f"{number:05d}", file) for number, file in enumerate(result.files)]


def items_digest(inputs: Inputs[Any]) -> dict[str, str]:
    """Return the part of a fingerprint that says which items a stage reads."""
    (items,) = inputs.files["benchmark"]
    return {"inputs": items.digest}


def _run(inputs: Inputs[Benchmark], writer: ShardWriter) -> StageOutput:
    benchmark = inputs.spec
    task, size = task_named(benchmark.task), benchmark.shard_items
    kept = 0
    left_out: Counter[str] = Counter()
    rejected: list[RejectedRow] = []

    def items() -> Iterator[Item]:
        for row in _rows(benchmark, task, left_out):
            if isinstance(row, RejectedRow):
                rejected.append(row)
            else:
                yield row

    rest = items()
    while batch := list(islice(rest, size)):
        writer.write(arrow.evaluation_table("benchmark", batch), f"{task.name}-{kept // size:05d}")
        kept += len(batch)
    if rejected:
        writer.write_rejects(arrow.rejects_table(rejected))
    reasons = Counter(row.reason for row in rejected)
    dropped = nonzero({_SAME_FACT: reasons.pop(_SAME_FACT, 0), **left_out})
    rows = kept + len(rejected) + left_out.total()
    return StageOutput((RowCounts("rows", rows, kept, dropped, nonzero(reasons)),))


def _rows(benchmark: Benchmark, task: Task, left_out: Counter[str]) -> Iterator[Item | RejectedRow]:
    path = Path(benchmark.path) if benchmark.path else None
    if benchmark.seed is None:
        yield from read(task, path, benchmark.limit)
        return
    rows = list(read(task, path))
    yield from (row for row in rows if isinstance(row, RejectedRow))
    items = [row for row in rows if isinstance(row, Item)]
    chosen = select_items(items, seed=benchmark.seed, limit=benchmark.limit, held_out=benchmark.held_out)
    left_out.update({_HELD_OUT: len(chosen.held_out), _NOT_CHOSEN: chosen.left})
    yield from chosen.used


def _digests(inputs: Inputs[Benchmark]) -> Mapping[str, str]:
    benchmark = inputs.spec
    cut = canonical_json([benchmark.limit, benchmark.shard_items])
    parts = {"source": benchmark.digest, "task": benchmark.task, "cut": cut}
    if benchmark.seed is not None:
        parts["sample"] = canonical_json([benchmark.seed, benchmark.held_out])
    return parts


def _config_notes(inputs: Inputs[Benchmark]) -> Mapping[str, Any]:
    benchmark = inputs.spec
    return {
        "task": benchmark.task,
        "path": benchmark.path or "",
        "limit": benchmark.limit,
        "shard": benchmark.shard_items,
        "evaluation": f"{'items' if benchmark.seed is None else 'sample'}/{benchmark.task}/{benchmark.source}",
    }


BENCHMARK: Stage[Benchmark] = Stage(
    name="benchmark", version="2", unit="rows", per="source", run=_run, digests=_digests, config_notes=_config_notes
)
