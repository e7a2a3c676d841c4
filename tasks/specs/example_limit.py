"""The limits of examples, per tool and of equal calls: which documents exceed them, and which shards a tool needs.

With `--stop-when-full` a tool is annotated on the shortest prefix of a seeded order of shards in which it has enough
examples; the limit then drops what its last shard has too many.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import Inputs, Shard, files_by_stage
from tasks.stages.assemble import AssemblySpec, judged_calls
from toolformer_core.annotate.assemble import ExampleCap
from toolformer_core.annotate.call_filter import same_call_rank
from toolformer_core.records import ScoredCall, digest_of
from warehouse.commits import DataFile
from warehouse.store import Store


def shard_order(shards: Iterable[Shard], seed: int) -> list[Shard]:
    """Return shards in the order in which they are taken: by a digest of the seed and the shard's name."""
    return sorted(shards, key=lambda shard: digest_of("stop-when-full", str(seed), shard.name))


@dataclass(frozen=True, slots=True)
class ExampleCounter:
    tools: Sequence[str]
    enough: int
    _examples: Counter[str] = field(default_factory=Counter)

    @property
    def open_tools(self) -> tuple[str, ...]:
        return tuple(tool for tool in self.tools if self._examples[tool] < self.enough)

    def add(self, examples: Mapping[str, int]) -> tuple[str, ...]:
        """Count a shard's examples of the open tools; return the tools that have enough now."""
        before = self.open_tools
        for tool in before:
            self._examples[tool] += examples.get(tool, 0)
        return tuple(tool for tool in before if tool not in self.open_tools)


def examples_in_shard(assembly: AssemblySpec, scored: Sequence[ShardResult]) -> Counter[str]:
    """Return how many documents of a shard would be examples of each tool, before the limit."""
    [kept] = _kept_calls(assembly, {"": scored}, None)
    return Counter(tool for tool, _ in {(tool, call.doc_id) for call in kept for tool in call.tools})


_Results = Mapping[str, Sequence[ShardResult]]  # by shard


def with_limits(assembly: AssemblySpec, scored: _Results, sampled: _Results | None = None) -> AssemblySpec:
    """Return the rules with the last ranks that stay; results of `sample` are needed where positions are left out."""
    if assembly.max_same_call is not None:
        kept = _kept_calls(assembly, scored, sampled)
        assembly = replace(assembly, last_same=_last_same(kept, assembly.max_same_call, assembly.config.seed))
    return replace(assembly, last_ranks=_last_ranks(assembly, scored, sampled))


def _kept_calls(assembly: AssemblySpec, scored: _Results, sampled: _Results | None) -> Iterator[list[ScoredCall]]:
    for shard, results in scored.items():
        files = files_by_stage((*results, *(sampled or {}).get(shard, ())))
        yield judged_calls(Inputs(assembly, shard, files=files)).kept


def _last_same(kept: Iterable[list[ScoredCall]], limit: int, seed: int) -> dict[str, str]:
    """Return the last rank that stays of equal calls that more documents keep than may; 16 bytes are held a call."""
    ranks = array("Q")
    for calls in kept:
        ranks.extend(int(number, 16) for call in calls for number in same_call_rank(call, seed))
    pairs = np.unique(np.frombuffer(ranks, np.uint64).reshape(-1, 2), axis=0)  # by equal calls, and then by rank
    same, first, documents = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    over = documents > limit
    last = pairs[first[over] + limit - 1, 1]
    return {f"{one:016x}": f"{rank:016x}" for one, rank in zip(same[over].tolist(), last.tolist(), strict=True)}


def _last_ranks(assembly: AssemblySpec, scored: _Results, sampled: _Results | None) -> dict[str, str]:
    """Return, for every tool with more examples than the limit, the last rank that stays; no more is held of shards."""
    limit, rows = assembly.config.max_examples, Counter[str]()
    for result in chain.from_iterable(scored.values()):
        rows[result.key.tool] += sum(file.rows for file in result.files)
    if all(n <= limit for n in rows.values()):
        return {}  # fewer calls than examples allowed: nothing needs to be read
    cap = ExampleCap(limit, assembly.config.seed)
    for calls in _kept_calls(assembly, scored, sampled):
        for tool in {tool for call in calls for tool in call.tools}:
            cap.add(tool, {call.doc_id for call in calls if tool in call.tools})
    return cap.last_ranks()


def examples_per_tool(store: Store, files: Sequence[DataFile], tools: Sequence[str]) -> dict[str, int]:
    counts = dict.fromkeys(tools, 0)
    for file in files:
        calls = store.read(file, columns=["calls"])["calls"].combine_chunks()
        columns = [pc.list_parent_indices(calls), pc.struct_field(pc.list_flatten(calls), "tool")]
        pairs = pa.table(columns, ["row", "tool"]).group_by(["row", "tool"]).aggregate([])
        for found in pc.value_counts(pairs["tool"]).to_pylist():
            counts[found["values"]] += found["counts"]
    return counts
