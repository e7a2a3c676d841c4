"""Extend: further calls, drawn by the model after calls that were executed, for chains (`annotate.chains`).

Any tool follows, even one whose prefilter dropped the document, unless it lacks the date that the tool would read.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from tasks.shards import arrow
from tasks.shards.model_thread import QueuedLM
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import LM_TOKENS, Inputs, Stage, at_depth
from tasks.specs.build_spec import BuildSpec, model_of
from tasks.stages.sample import count_samples, prompt_digests
from tasks.stages.score import names_digest
from toolformer_core.annotate.chains import extend, starts_of
from toolformer_core.annotate.prefilter import UNDATED
from toolformer_core.config import CHAIN_STARTS

STARTS = "starts"  # the counter of a commit: calls after which others were drawn


def _run(depth: int, inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    spec, tool = inputs.spec, inputs.tool
    undated = {v.doc_id for v in inputs.records("prefilter", arrow.prefilter_results) if v.reason in UNDATED}
    scored = inputs.records(at_depth("score", depth - 1), arrow.scored_of)
    by_document = starts_of((call for call in scored if call.doc_id not in undated), CHAIN_STARTS)
    starts = [call for calls in by_document.values() for call in calls]
    drawn, tokens = [], 0
    if starts:
        texts = {d.doc_id: d.text for d in inputs.records("ingest", arrow.documents_of) if d.doc_id in by_document}
        with QueuedLM(model_of(spec), writer.add_wait) as lm:
            drawn = extend(lm, spec.chain_prompts[tool], tool, spec.tool_names, texts, starts, spec.sample[tool])
        tokens = lm.tokens
    table = arrow.stage_table(at_depth("sample", depth), drawn)
    return StageOutput((count_samples(drawn),), table, {LM_TOKENS: tokens, STARTS: len(starts)})


def _digests(inputs: Inputs[BuildSpec]) -> Mapping[str, str]:
    spec = inputs.spec
    prompt = prompt_digests(spec, spec.chain_prompts[inputs.tool])
    return {**prompt, "starts": str(CHAIN_STARTS), "tools": names_digest(spec)}


def extend_stage(depth: int) -> Stage[BuildSpec]:
    scores = at_depth("score", depth - 1)
    return Stage(
        name=at_depth("sample", depth),
        version="3",
        unit="samples",
        per="tool",
        needs="model",
        reads=("ingest", "prefilter", scores),
        across=(scores,),
        run=partial(_run, depth),
        config=lambda inputs: inputs.spec.sample[inputs.tool],
        digests=_digests,
        config_notes=lambda inputs: asdict(inputs.spec.chains),
        wanted=lambda spec: spec.chains.depth >= depth,
    )
