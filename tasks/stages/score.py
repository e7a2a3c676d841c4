"""Score, at each depth: the three losses of every call that has a response, and the gains of decoys if requested."""

from collections.abc import Mapping
from functools import partial

from tasks.shards import arrow
from tasks.shards.model_thread import QueuedLM
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import LM_TOKENS, Inputs, Stage, at_depth, nonzero
from tasks.specs.build_spec import BuildSpec, model_of
from toolformer_core.annotate.decoys import RESERVE_NAME, DecoyPool
from toolformer_core.annotate.score import score, worth_scoring
from toolformer_core.config import canonical_json
from toolformer_core.records import digest_of
from warehouse.commits import RowCounts


def _run(depth: int, inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    spec = inputs.spec
    contexts = {v.doc_id: v.context for v in inputs.records("prefilter", arrow.prefilter_results)}
    executions = {(e.input, e.context): e for e in inputs.records(at_depth("execute", depth), arrow.executions_of)}
    calls = inputs.records(at_depth("sample", depth), arrow.parsed_calls_of)
    made = [(call, executions[call.input, contexts[call.doc_id]]) for call in calls]
    answered = [(call, execution.response) for call, execution in made if not execution.failure]
    wanted = {call.doc_id for call, _ in answered}
    documents = inputs.records("ingest", arrow.documents_of) if wanted else []
    texts = {document.doc_id: document.text for document in documents if document.doc_id in wanted}
    worth, unscored = worth_scoring(texts, answered, spec.sample[inputs.tool])
    scored, tokens, names = [], 0, spec.tool_names
    decoys = DecoyPool.of(spec.score, inputs.tool, ((call.doc_id, response) for call, response in worth))
    if worth:
        with QueuedLM(model_of(spec), writer.add_wait) as lm:
            scored = score(lm, names[inputs.tool], texts, worth, spec.score, decoys, names)
        tokens = lm.tokens
    dropped = nonzero({**unscored, "same_call_drawn_differently": len(worth) - len(scored)})
    failed = nonzero({"no_response": len(calls) - len(answered)})
    counts = RowCounts("calls", len(calls), len(scored), dropped, failed)
    counters = {LM_TOKENS: tokens}
    if decoys is not None:
        counters |= {"decoys": decoys.from_shard + decoys.from_reserve, "decoys_from_reserve": decoys.from_reserve}
    return StageOutput((counts,), arrow.stage_table(at_depth("score", depth), scored), counters)


def _digests(depth: int, inputs: Inputs[BuildSpec]) -> Mapping[str, str]:
    spec = inputs.spec
    return spec.model_digests() | ({} if depth == 1 else {"tools": names_digest(spec)})


def names_digest(spec: BuildSpec) -> str:
    """Return the digest of the tools' names in calls: the calls in front of one in a chain are of any tool."""
    return digest_of(canonical_json(dict(spec.tool_names)))


def score_stage(depth: int) -> Stage[BuildSpec]:
    return Stage(
        name=at_depth("score", depth),
        version="4",
        unit="calls",
        per="tool",
        needs="model",
        reads=("ingest", "prefilter", at_depth("sample", depth), at_depth("execute", depth)),
        run=partial(_run, depth),
        config=lambda inputs: inputs.spec.score,
        digests=partial(_digests, depth),
        config_notes=lambda inputs: {"reserve": RESERVE_NAME} if inputs.spec.score.decoys else {},
        wanted=lambda spec: spec.chains.depth >= depth,
    )


SCORE = score_stage(1)
