"""Execute, at each depth: the tool on every distinct call of a shard whose response is not known from earlier."""

import time
from functools import partial

from tasks.shards import arrow
from tasks.shards.retry import TRANSIENT, asks_again
from tasks.shards.run_shard import ShardResult, ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage, at_depth, count_failed
from tasks.shards.tool_cache import OLDEST_ANSWER, ToolCache, answered_of, cache_of
from tasks.specs.build_spec import BuildSpec, pool_of, tool_of
from toolformer_core.annotate.execute import execute, is_transient
from toolformer_core.tools.base import ttl_of
from toolformer_core.tools.execution.tally import CallTally


def _run(depth: int, inputs: Inputs[BuildSpec], _: ShardWriter) -> StageOutput:
    spec, name = inputs.spec, inputs.tool
    contexts = {v.doc_id: v.context for v in inputs.records("prefilter", arrow.prefilter_results)}
    calls = inputs.records(at_depth("sample", depth), arrow.parsed_calls_of)
    requests = list(dict.fromkeys((call.input, contexts[call.doc_id]) for call in calls))
    if not requests:
        return StageOutput((count_failed("calls", []),), arrow.stage_table(at_depth("execute", depth), []))
    tool = tool_of(spec, name)
    start = time.time()
    earlier = inputs.records(at_depth("execute", depth), arrow.executions_of)  # of the commit that this one follows
    known = {(e.input, e.context): e for e in earlier if not is_transient(e.failure, e.transient)}
    answered = answered_of(inputs.follows) if inputs.follows is not None else start
    recalled = _cache(depth, inputs).recall([own for own in requests if own not in known], offline=spec.offline)
    known |= recalled.known
    pool = pool_of(tool, spec.execute.timeout_s)
    tally = CallTally()
    executions = execute(tool, requests, spec.execute, known, offline=spec.offline, pool=pool, tally=tally)
    counts = count_failed("calls", (e.failure for e in executions))
    counters = {
        "cache_hits": len(known),
        OLDEST_ANSWER: min(start, answered, recalled.answered),
        TRANSIENT: sum(is_transient(e.failure, e.transient) for e in executions),
        **tally.counters(),
    }
    return StageOutput((counts,), arrow.stage_table(at_depth("execute", depth), executions), counters)


def _cache(depth: int, inputs: Inputs[BuildSpec]) -> ToolCache:
    lifetime = ttl_of(tool_of(inputs.spec, inputs.tool))
    parts = EXECUTE.shard_spec(inputs).all_parts()
    stages = tuple(at_depth(EXECUTE.name, n) for n in range(1, depth + 1))
    return cache_of(inputs.spec.data, inputs.tool, parts, lifetime, stages)


def _committed(depth: int, inputs: Inputs[BuildSpec], result: ShardResult) -> None:
    if result.counts[0].rows_in:
        _cache(depth, inputs).committed(result.key.id)


def execute_stage(depth: int) -> Stage[BuildSpec]:
    return Stage(
        name=at_depth("execute", depth),
        version="3",
        unit="calls",
        per="tool",
        needs="tool",
        reads=("prefilter", at_depth("sample", depth)),
        run=partial(_run, depth),
        config=lambda inputs: inputs.spec.execute,
        digests=lambda inputs: {"answers": inputs.spec.tool_digests[inputs.tool]},
        committed=partial(_committed, depth),
        wanted=lambda spec: spec.chains.depth >= depth,
        follow=lambda inputs, commit: asks_again(inputs.spec, commit),
    )


EXECUTE = execute_stage(1)
