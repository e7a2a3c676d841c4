"""Execute: the tool on every distinct call of a shard whose response is not known from earlier.

A commit whose failures were transient can be followed by another one, in which these are asked again (see
`tasks.follow_up`); what the earlier one knows is not asked again, however old it is.
"""

from __future__ import annotations

import time
from collections import Counter

from tasks import arrow
from tasks.build_spec import BuildSpec, pool_of, tool_of
from tasks.follow_up import TRANSIENT, asks_again
from tasks.run_shard import ShardResult, ShardWriter, StageOutput
from tasks.stage import Inputs, Stage
from tasks.tool_cache import OLDEST_ANSWER, ToolCache, answered_of, cache_of
from toolformer_core.annotate.execute import execute, is_transient
from toolformer_core.records import Execution
from toolformer_core.tools.base import ttl_of
from toolformer_core.tools.execution.tally import CallTally
from warehouse.commits import RowCounts

__all__ = ["EXECUTE"]


def _run(inputs: Inputs[BuildSpec], _: ShardWriter) -> StageOutput:
    spec, name = inputs.spec, inputs.tool
    contexts = {v.doc_id: v.context for v in inputs.records("prefilter", arrow.verdicts_of)}
    calls = inputs.records("sample", arrow.parsed_calls_of)
    requests = list(dict.fromkeys((call.input, contexts[call.doc_id]) for call in calls))
    if not requests:
        return StageOutput((RowCounts("calls", 0, 0),), arrow.stage_table("execute", []))
    tool = tool_of(spec, name)
    start = time.time()
    known = _known_before(inputs)
    answered = answered_of(inputs.follows) if inputs.follows is not None else start
    recalled = _cache(inputs).recall([own for own in requests if own not in known], offline=spec.offline)
    known |= recalled.known
    pool = pool_of(tool, spec.execute.timeout_s)
    tally = CallTally()
    executions = execute(tool, requests, spec.execute, known, offline=spec.offline, pool=pool, tally=tally)
    failed = Counter(e.failure for e in executions if e.failure)
    kept = sum(1 for e in executions if not e.failure)
    counts = RowCounts("calls", len(executions), kept, failed=dict(sorted(failed.items())))
    counters = {
        "cache_hits": len(known),
        OLDEST_ANSWER: min(start, answered, recalled.answered),
        TRANSIENT: sum(is_transient(e.failure, e.transient) for e in executions),
        **tally.counters(),
    }
    return StageOutput((counts,), arrow.stage_table("execute", executions), counters)


def _known_before(inputs: Inputs[BuildSpec]) -> dict[tuple[str, str], Execution]:
    """Return what the commit that this one follows knows, without its transient failures."""
    earlier = inputs.records(EXECUTE.name, arrow.executions_of)
    return {(e.input, e.context): e for e in earlier if not is_transient(e.failure, e.transient)}


def _cache(inputs: Inputs[BuildSpec]) -> ToolCache:
    lifetime = ttl_of(tool_of(inputs.spec, inputs.tool))
    return cache_of(inputs.spec.data, inputs.tool, EXECUTE.shard_spec(inputs).all_parts(), lifetime)


def _committed(inputs: Inputs[BuildSpec], result: ShardResult) -> None:
    if result.counts[0].rows_in:
        _cache(inputs).committed(result.key.id)


EXECUTE: Stage[BuildSpec] = Stage(
    name="execute",
    version="2",
    unit="calls",
    per="tool",
    needs="tool",
    reads=("prefilter", "sample"),
    run=_run,
    config=lambda inputs: inputs.spec.execute,
    digests=lambda inputs: {"answers": inputs.spec.tool_digests[inputs.tool]},
    committed=_committed,
    follow=lambda inputs, commit: asks_again(inputs.spec, commit),
)
